"""The same elements in another shape, order or number."""

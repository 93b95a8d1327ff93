"""Manipulation: elements in another shape, order or number."""

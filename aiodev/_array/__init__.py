"""Arrays: layouts, views, the protocols of other libraries, and copies."""

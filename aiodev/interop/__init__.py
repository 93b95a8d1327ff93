"""What connects aiodev with other libraries: a module for each, which needs that library."""

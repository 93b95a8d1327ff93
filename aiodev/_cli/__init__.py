"""The command line: ``python -m aiodev info`` and ``python -m aiodev demo``."""

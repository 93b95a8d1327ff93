"""The CPU backend; reached through the ``aiodev.backends`` entry point."""

from aiodev._backends.cpu.backend import CPUBackend

__all__ = ["CPUBackend"]

"""The CUDA backend; reached through the ``aiodev.backends`` entry point."""

from aiodev._backends.cuda.backend import CUDABackend

__all__ = ["CUDABackend"]

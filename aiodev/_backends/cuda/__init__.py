"""The CUDA backend; reached through the ``aiodev.backends`` entry point."""

"""A compiled kernel from the disk cache, else from the compiler, which is imported when the first one is compiled."""

from __future__ import annotations

import sys

from aiodev._backends.cuda.compile.image import Image, cached_image, keep_image
from aiodev._core.backend.interface import KernelSpec
from aiodev._native.preload import quiet_import

__all__ = ["load_image"]


def load_image(spec: KernelSpec, directory: str, architecture: tuple[int, int], driver: int) -> Image:
    """The compiled kernel, from the disk cache, else compiled into it. Blocks.

    Args:
        driver: major version of the CUDA driver that is to load it.

    Raises:
        CompileError: numba-cuda refused it.
    """
    cached = cached_image(spec, directory, architecture, driver)
    if cached is not None:
        return cached
    if "numba.cuda" in sys.modules:
        from aiodev._backends.cuda.compile import compiler
    else:
        with quiet_import():
            from aiodev._backends.cuda.compile import compiler

    image = compiler.compile_image(spec, architecture)
    keep_image(image, spec, directory, architecture, driver)
    return image

"""Compile the CUDA executor's host code into the disk cache, in a process of its own, as the CPU's is at its first start."""

from __future__ import annotations

from aiodev._backends.cpu import codecache
from aiodev._backends.cpu.build import run_elsewhere
from aiodev._backends.cuda.codecache import native_key

__all__ = ["ensure_cached", "main"]


def ensure_cached() -> None:
    """Fill the cache from another process, unless it is full. Blocks for some seconds, without the GIL."""
    if not codecache.is_complete(native_key()):
        run_elsewhere("aiodev._backends.cuda.build")


def main() -> None:
    """Compile everything, here."""
    from aiodev._backends.cuda import native

    assert native.watch.signatures
    codecache.mark_complete(native_key())

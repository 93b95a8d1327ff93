"""The key of the CUDA executor's host code in numba's disk cache (see :mod:`aiodev._backends.cpu.codecache`)."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from aiodev._backends.cpu import codecache

__all__ = ["native_key"]


@functools.cache
def native_key() -> str:
    """Hash of the sources that the code is made of."""
    digest = hashlib.sha256(codecache.native_key().encode())
    here = Path(__file__).parent
    for source in sorted([here / "layout.py", *(here / "native").glob("*.py")]):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:32]

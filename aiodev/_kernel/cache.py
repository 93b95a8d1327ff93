"""What a kernel's code is known by in the disk cache, which is the backend's: files in a form and a place of its own."""

from __future__ import annotations

import sys

from aiodev._core.backend import KernelSpec
from aiodev._kernel.snapshot import Snapshot

__all__ = ["cache_key"]


def cache_key(spec: KernelSpec, snapshot: Snapshot) -> str:
    """Hash of a kernel's content, types and options. The backend adds its compiler's version and its target.

    Raises:
        Uncapturable: the body depends on a value that has no bytes of its own.
    """
    import hashlib  # here, and so off the loop: it loads OpenSSL

    parts = (spec.name, spec.ndim, spec.arguments, spec.options, sys.implementation.cache_tag, snapshot.digest())
    return hashlib.sha256(repr(parts).encode()).hexdigest()

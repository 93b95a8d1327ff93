"""Keys of kernels in the disk cache. The files there have a form and a place that each backend chooses."""

from __future__ import annotations

import sys

from aiodev._core.backend.interface import KernelSpec
from aiodev._core.sources import compiled_by
from aiodev._kernel.compile.snapshot import Snapshot

__all__ = ["SOURCES", "cache_key"]

#: What a kernel's code comes from before a backend compiles it: what is read from its body, the interface to backends, the
#: table of dtypes, and the functions that a snapshot names and does not hold.
SOURCES = (
    "_kernel",
    "_core/backend/interface.py",
    "_core/backend/kernel_arguments.py",
    "_core/dtypes.py",
    "lang",
)


def cache_key(spec: KernelSpec, snapshot: Snapshot) -> str:
    """Hash of a kernel's content, types and options, and of this layer. The backend adds its compiler and its target.

    It does not say where this package is installed, nor with which others: code may be made on another machine.
    Blocks: the first call in a process reads the sources.

    Raises:
        Uncapturable: the body depends on a value that has no bytes of its own.
    """
    import hashlib  # here, and so off the loop: it loads OpenSSL

    parts = (spec.name, spec.ndim, spec.arguments, spec.options, sys.implementation.cache_tag, snapshot.digest())
    return hashlib.sha256(repr((parts, compiled_by(*SOURCES, distributions=()))).encode()).hexdigest()

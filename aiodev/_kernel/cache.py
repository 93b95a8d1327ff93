"""What is in the disk cache, as far as it can be said without a compiler.

The code is the backend's, in a form and a place of its own. Here is only a marker for each kernel that was compiled for this
machine, so that a new process knows, without asking a compiler, which kernels it need not send to a worker. A
marker whose code is gone is harmless: the backend then compiles, in a thread.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import sys
from pathlib import Path

from aiodev._core.backend import KernelSpec
from aiodev._kernel.snapshot import Snapshot

__all__ = ["cache_key", "is_compiled", "mark_compiled"]


def cache_key(spec: KernelSpec, snapshot: Snapshot) -> str:
    """Hash of a kernel's content, types and options. The backend adds its compiler's version and its target.

    Raises:
        Uncapturable: the body depends on a value that has no bytes of its own.
    """
    parts = (spec.name, spec.ndim, spec.arguments, spec.options, sys.implementation.cache_tag, snapshot.digest())
    return _hash(repr(parts))


def is_compiled(directory: str, backend: str, key: str) -> bool:
    """Whether the kernel was compiled on this machine before."""
    return _marker(directory, backend, key).exists()


def mark_compiled(directory: str, backend: str, key: str) -> None:
    """Say that it was. A cache that cannot be written to is no error."""
    marker = _marker(directory, backend, key)
    with contextlib.suppress(OSError):
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()


@functools.cache
def _machine() -> str:
    """What makes compiled code useless elsewhere: another machine that shares the directory, another compiler or none."""
    from importlib import metadata  # costly to import, and needed by the first compilation only

    versions = []
    for name in ("aiodev", "llvmlite", "numba"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(metadata.version(name))
    interpreted = [name for name in ("NUMBA_DISABLE_JIT", "NUMBA_ENABLE_CUDASIM") if os.environ.get(name, "0") != "0"]
    return repr((platform.node(), platform.machine(), versions, interpreted))


def _marker(directory: str, backend: str, key: str) -> Path:
    digest = _hash(f"{_machine()}{backend}{key}")
    return Path(directory, "compiled", digest[:2], digest[2:34])


def _hash(text: str) -> str:
    import hashlib  # here, and so off the loop: it loads OpenSSL

    return hashlib.sha256(text.encode()).hexdigest()

"""The disk cache's files: one compiled kernel each, named by the hash of all that determines it.

A file is a digest and a pickle. It is written under another name and renamed, so readers see all of it or nothing; one that
is damaged, or made by a numba that pickles otherwise, counts as absent and is written anew. Like numba's own, the
cache must only be writable by its owner: loading runs what it holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["path_of", "read", "write"]

_DIGEST_BYTES = 16


def path_of(directory: str, name: str, key: str, target: str) -> Path:
    """Where a kernel's file is: a readable name and a hash."""
    digest = hashlib.sha256(f"{key}\n{target}".encode()).hexdigest()
    readable = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:64]
    return Path(directory, "cpu", digest[:2], f"{readable}-{digest[2:34]}.bin")


def read(path: Path | None) -> Any:
    """What was written at ``path``; None when nothing is, or nothing that can be used."""
    if path is None:
        return None
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, payload = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if digest != _digest(payload):
        return None
    try:
        return pickle.loads(payload)
    except (pickle.UnpicklingError, AttributeError, ImportError, EOFError, IndexError, TypeError, ValueError):
        return None


def write(path: Path | None, content: Any) -> None:
    """Keep ``content`` at ``path``. A cache that cannot be written to is no error: the next process compiles again."""
    if path is None:
        return
    from numba.core.serialize import dumps  # knows how to pickle what numba made

    payload = dumps(content)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
    except OSError:
        return
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_digest(payload) + payload)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=_DIGEST_BYTES).digest()

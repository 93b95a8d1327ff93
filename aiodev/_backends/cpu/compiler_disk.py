"""The disk cache's files: one compiled kernel each, named by the hash of all that determines it.

A file is a digest and what it is the digest of. It is written under another name and renamed, so readers see all of it or
nothing; one that is damaged counts as absent and is written anew. Like numba's own, the cache must only be writable by
its owner: loading runs what it holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

__all__ = ["path_of", "read", "write"]

_DIGEST_BYTES = 16


def path_of(directory: str, name: str, key: str, target: str) -> Path:
    """Where a kernel's file is: a readable name and a hash."""
    digest = hashlib.sha256(f"{key}\n{target}".encode()).hexdigest()
    readable = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:64]
    return Path(directory, "cpu", digest[:2], f"{readable}-{digest[2:34]}.bin")


def read(path: Path | None) -> bytes | None:
    """What was written at ``path``; None when nothing is, or nothing that can be used."""
    if path is None:
        return None
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, payload = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    return payload if digest == _digest(payload) else None


def write(path: Path | None, payload: bytes) -> None:
    """Keep ``payload`` at ``path``. A cache that cannot be written to is no error: the next process compiles again."""
    if path is None:
        return
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

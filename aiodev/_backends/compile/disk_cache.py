"""The disk cache's files: one compiled kernel each, named by the hash of all that determines it.

A file is a header and byte strings, in a form that says nothing but where each begins; to read it runs nothing. What it holds
is machine code, so the directory must be one that nobody else can write to, and it is written whole or not at all
(:mod:`aiodev._core.cache_directory`). One that is damaged, or has another form, is deleted and written anew.

Values that go with code are kept as Python literals (:func:`pack`). Those that have none, such as an object of a class of
numba's that its generated code wants back as it was, are pickled.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import pickle
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiodev._core.cache_directory import cache, write_whole

__all__ = ["has_kernels", "pack", "path_of", "read", "unpack", "write", "write_file"]

_MAGIC = b"aiodev 1"
_DIGEST_BYTES = 16
#: How many byte strings there are; the length of each follows.
_COUNT = struct.Struct("<Q")
#: Before a value that is a literal, and before one that is a pickle.
_LITERAL, _PICKLE = b"=", b"!"


def path_of(directory: str, name: str, key: str, target: str) -> Path:
    """Where a kernel's file is: a readable name and a hash."""
    digest = hashlib.sha256(f"{key}\n{target}".encode()).hexdigest()
    readable = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:64]
    return Path(directory, "cpu", digest[:2], f"{readable}-{digest[2:34]}.bin")


def has_kernels(directory: str) -> bool:
    """Whether any kernel is kept there, of whatever version."""
    return any(Path(directory, "cpu").glob("*/*.bin"))


def read(path: Path | None) -> list[bytes] | None:
    """The content of the file at ``path``; None where there is none, or none that can be used."""
    if path is None:
        return None
    try:
        data = path.read_bytes()
    except OSError:
        return None
    begin = len(_MAGIC) + _DIGEST_BYTES
    payload = data[begin:]
    if data[:begin] != _MAGIC + _digest(payload):
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    (count,) = _COUNT.unpack_from(payload)
    lengths = struct.unpack_from(f"<{count}Q", payload, _COUNT.size)
    parts, position = [], _COUNT.size + 8 * count
    for length in lengths:
        parts.append(payload[position : position + length])
        position += length
    return parts


def write(path: Path | None, parts: Sequence[bytes]) -> None:
    """Keep ``parts`` at ``path``. A cache that cannot be written to is no error: the next process compiles again."""
    if path is None:
        return
    try:
        write_file(path, parts)
    except OSError as error:
        cache.report(error)


def write_file(path: Path, parts: Sequence[bytes]) -> None:
    """Keep ``parts`` at ``path``.

    Raises:
        OSError: it cannot be written.
    """
    lengths = struct.pack(f"<{len(parts)}Q", *map(len, parts))
    payload = b"".join((_COUNT.pack(len(parts)), lengths, *parts))
    write_whole(path, _MAGIC + _digest(payload) + payload)


def pack(value: Any) -> bytes:
    """A value as bytes: its literal if that says all, else a pickle."""
    text = repr(value)
    with contextlib.suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        if _same(ast.literal_eval(text), value):
            return _LITERAL + text.encode()
    from numba.core.serialize import dumps  # knows how to pickle what numba made

    pickled: bytes = dumps(value)
    return _PICKLE + pickled


def unpack(data: bytes) -> Any:
    """The value of what :func:`pack` returned.

    Raises:
        Exception: it was pickled by other versions than these.
    """
    return ast.literal_eval(data[1:].decode()) if data[:1] == _LITERAL else pickle.loads(data[1:])


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of the same types, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return len(one) == len(other) and all(map(_same, one.items(), other.items()))
    return isinstance(one, bool | int | float | complex | str | bytes | None) and repr(one) == repr(other)


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=_DIGEST_BYTES).digest()

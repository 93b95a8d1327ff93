"""Files of graphs: a line that says so, a checksum, a document in JSON, and memory.

::

    aiodev graph 1
    <sha256 of all that follows, in hexadecimal>
    <bytes of the document, as decimal digits>
    <the document>
    <bytes of constants, one behind the other>

The document names kernels, and has the arguments of each node as words; which of these are addresses, and relative to what, it
says beside them. It is read as data: all that it has this process do is to look up kernels by the names of their modules, which
are imported.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from aiodev._core.errors import GraphFileError

__all__ = ["VERSION", "read_file", "write_file"]

#: Of the form of files. What another one has is not read.
VERSION = 1
_MAGIC = b"aiodev graph "


def write_file(path: Path, document: dict[str, Any], constants: list[bytes]) -> None:
    """Write a file, whole or not at all. Blocks.

    Raises:
        GraphFileError: it cannot be written.
    """
    text = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    body = b"".join([b"%d\n" % len(text), text, *constants])
    head = b"%s%d\n%s\n" % (_MAGIC, VERSION, hashlib.sha256(body).hexdigest().encode())
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            draft.write_bytes(head + body)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # the latter for what is no path at all
        raise GraphFileError(str(path), f"it cannot be written: {error}") from error


def read_file(path: Path) -> tuple[dict[str, Any], bytes]:
    """The document, and all constants. Blocks.

    Raises:
        GraphFileError: it cannot be read, is no such file, of another version, or not as it was written.
    """
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # the latter for what is no path at all
        raise GraphFileError(str(path), f"it cannot be read: {error}") from error
    magic, _, rest = content.partition(b"\n")
    if not magic.startswith(_MAGIC):
        raise GraphFileError(str(path), "it holds no graph: its first words are others; load what Graph.save has written")
    if magic != b"%s%d" % (_MAGIC, VERSION):
        version = magic.removeprefix(_MAGIC).decode(errors="replace")[:20]
        raise GraphFileError(str(path), f"it has form {version}, and here form {VERSION} is read; save the graph anew")
    digest, _, body = rest.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise GraphFileError(
            str(path), f"it was cut short, or changed: its {len(content):,} bytes have another checksum; save the graph anew"
        )
    count, _, body = body.partition(b"\n")
    length = int(count)
    document: dict[str, Any] = json.loads(body[:length])
    return document, body[length:]

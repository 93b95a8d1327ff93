"""Arrays in files of the safetensors format, through ``safetensors`` (``pip install 'aiodev[safetensors]'``)."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio.to_thread
import numpy as np

from aiodev._array.array import Array
from aiodev._array.creation import empty
from aiodev._array.dtypes import DType, parse_dtype
from aiodev._autograd.delivery import follow
from aiodev._autograd.variable import plain_of
from aiodev._core.arguments import instance, refusal
from aiodev._core.backend.registry import DeviceLike
from aiodev._core.streams.completion import Completion
from aiodev._core.streams.current import current_stream
from aiodev._memory.buffer import check_writes

try:
    from safetensors import SafetensorError, TensorSpec, safe_open, serialize_file
except ImportError as error:
    raise ImportError("aiodev.interop.safetensors needs safetensors: pip install 'aiodev[safetensors]'") from error

__all__ = ["load", "save"]

#: What the format has in place of an array's name.
_RESERVED = "__metadata__"
#: Under which of a file's metadata there is what is no array, and where arrays belong, as JSON.
_TREE = "aiodev"
#: The format's names of the dtypes that arrays have.
_DTYPES = {
    "BOOL": "bool", "I8": "int8", "U8": "uint8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
    "I64": "int64", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64",
}  # fmt: skip

HostArray = np.ndarray[Any, DType]


async def save(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write arrays to a file, and what else a state has.

    All copies to the host are submitted before anything is waited for, to the current stream of each device, behind whatever
    writes the arrays. So what is submitted there later, such as a step of training, is not in the file. The file is written in
    a thread, and takes the place of one that is there when it is whole. A cancelled call waits until the thread has ended.

    Args:
        path: of the file.
        state: arrays by name, of any devices, or variables; numbers, texts, truth values and None; and mappings of such, as
            ``state_dict`` of an optimizer gives. In the file an array has the names that lead to it, with dots between them.

    Raises:
        TypeError: something is none of these, or has a dtype that the format has not.
        ValueError: two arrays would have the same name, or one a name that a file cannot have.
        CaptureError: a current stream is being captured.
        OSError: the file cannot be written.
        AiodevError: what was to write an array has failed.

    .. code-block:: python

       await safetensors.save("checkpoint.safetensors", {"w": w, "optimizer": optimizer.state_dict()})
    """
    arrays: dict[str, Any] = {}
    tree = _split("save", state, "", arrays)
    is_plain = all(isinstance(one, list) for one in tree.values())  # of arrays only: any reader knows all of it
    for name, array in arrays.items():
        if array.dtype.name not in _DTYPES.values():
            raise TypeError(f"save: {name}: the format has no {array.dtype}")
    for device in {array.device for array in arrays.values() if isinstance(array, Array)}:
        if (recording := current_stream(device).timeline.recording) is not None:
            recording.refuse("a file is written by the host, and not when the graph is replayed")
    hosts: dict[str, HostArray] = {}
    copies: list[Completion[None]] = []
    written = []
    for name, array in arrays.items():
        if isinstance(array, Array):
            stream, host = current_stream(array.device), np.empty(array.shape, array.dtype)
            follow(stream, points := array._buffer.contents())
            written += points
            copies.append(stream.copy(host, array))
            hosts[name] = host
        else:
            hosts[name] = array.astype(array.dtype.newbyteorder("="), "C")
    for copy in copies:
        await copy
    check_writes(written)  # a failure that somebody was told of is nothing to the copies
    await anyio.to_thread.run_sync(_write, Path(path), hosts, None if is_plain else {_TREE: json.dumps(tree)})


async def load(path: str | os.PathLike[str], device: DeviceLike | None = None) -> dict[str, Any]:
    """Read arrays from a file, and what else :func:`save` has written.

    The file is read in a thread. The arrays are copied to the device on its current stream, and are there when the call
    returns.

    Args:
        path: of the file, which may be of any program.
        device: where the arrays are to be; the current device by default.

    Returns:
        What was saved. Of a file that :func:`save` has not written, the arrays by their names.

    Raises:
        ValueError: it is no such file, or not a whole one.
        TypeError: it has a dtype that arrays have not.
        OSError: it cannot be read.

    .. code-block:: python

       state = await safetensors.load("checkpoint.safetensors", device="cpu")
       w = autograd.Variable(state["w"])
       optimizer = optim.Adam([w])
       optimizer.load_state_dict(state["optimizer"])
    """
    hosts, metadata = await anyio.to_thread.run_sync(_read, Path(path))
    try:
        tree = json.loads(metadata[_TREE]) if _TREE in metadata else {name: [name] for name in hosts}
        is_whole = isinstance(tree, dict) and sorted(_names(tree)) == sorted(hosts)
    except (ValueError, TypeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise ValueError(f"{path}: what it says of its arrays is not what `save` writes")
    stream = current_stream(device)
    arrays: dict[str, Array] = {}
    copies = []
    for name, host in hosts.items():
        arrays[name] = empty(host.shape, host.dtype, stream.device)
        copies.append(stream.copy(arrays[name], host))
    for copy in copies:
        await copy
    return _joined(tree, arrays)


def _split(where: str, state: Any, prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """A state in which there are names, each in a list, in place of arrays, which are listed."""
    names: dict[str, Any] = {}
    for key, value in instance(where, prefix or "state", state, Mapping, "a mapping of names").items():  # type: ignore[type-abstract]
        name = f"{prefix}.{key}" if prefix else instance(where, "state", key, str, "names that are texts")
        instance(where, name, key, str, "a name that is a text")
        if isinstance(value, Mapping):
            names[key] = _split(where, value, name, arrays)
        elif isinstance(value, Array | np.ndarray):
            if name in arrays:
                raise ValueError(f"{where}: {name}: two arrays have this name")
            if name == _RESERVED or not _is_text(name):
                raise ValueError(f"{where}: {name!r}: a file can have no array of this name")
            arrays[name] = plain_of(value)
            names[key] = [name]
        elif value is None or type(value) in (bool, int, float, str):
            names[key] = value
        else:
            raise refusal(where, name, "an array, a number, a text, None, or a mapping of such", value)
    return names


def _is_text(name: str) -> bool:
    """Whether it has a form in UTF-8, which halves of surrogate pairs have not."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _names(tree: Any) -> Iterator[str]:
    """The names of arrays in a tree."""
    for value in tree.values():
        if isinstance(value, dict):
            yield from _names(value)
        elif isinstance(value, list):
            (name,) = value
            yield name


def _joined(tree: Any, arrays: Mapping[str, Array]) -> dict[str, Any]:
    """The state that a tree is of."""
    return {
        key: _joined(value, arrays) if isinstance(value, dict) else arrays[value[0]] if isinstance(value, list) else value
        for key, value in tree.items()
    }


def _write(path: Path, hosts: Mapping[str, HostArray], metadata: dict[str, str] | None) -> None:
    """Write a file beside the one that it is to replace, and then replace it."""
    specifications = {
        name: TensorSpec(dtype=host.dtype.name, shape=host.shape, data_ptr=host.ctypes.data, data_len=host.nbytes)
        for name, host in hosts.items()
    }
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        written = os.path.join(folder, path.name)
        serialize_file(specifications, written, metadata=metadata)
        os.replace(written, path)


def _read(path: Path) -> tuple[dict[str, HostArray], dict[str, str]]:
    """The arrays of a file, in memory, and its metadata."""
    try:
        with safe_open(path, framework="np") as file:
            names = file.keys()
            for name in names:
                code = file.get_slice(name).get_dtype()
                if code not in _DTYPES:
                    raise TypeError(f"{path}: {name}: there are no arrays of the format's {code}")
                parse_dtype(_DTYPES[code])  # which says what it needs
            return {name: np.array(file.get_tensor(name)) for name in names}, file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path}: expected a safetensors file: {error}") from error

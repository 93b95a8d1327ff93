"""DLPack's structures and capsules, old (``dltensor``) and versioned (``dltensor_versioned``, DLPack 1.x).

Nothing here knows of arrays or devices: a :class:`~aiodev._array.dlpack.Tensor` is plain data. To make all this takes
``ctypes`` and LLVM their time, and few programs need it: who does imports it then.

**Lifetimes.** An exported structure, its shape and its owner live in ``_exported`` until the consumer calls the deleter, or
until its capsule dies unused. The deleter is a Python function behind a C pointer, which takes the GIL, from any thread, and
puts an exception aside that is set then (:mod:`aiodev._array.error_safe`): consumers fail, too. A consumer may outlive the
interpreter: from the program's end on the deleter and the capsules' destructor do nothing. Where they are the consumer reads
in the structure itself, so the structures that are still lent then are never freed. Capsules are not kept track of: consumers
take their destructor away, and nobody hears of it when they die.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable
from typing import Any

from aiodev._array.dlpack import VERSION, Tensor
from aiodev._array.dtypes import dtype_named, row_of
from aiodev._array.error_safe import error_safe, immortal
from aiodev._array.layout import packed_strides
from aiodev._core.dtypes import DTYPES
from aiodev._core.finalizing import until_exit

__all__ = ["Imported", "export_capsule", "import_capsule"]

_READ_ONLY, _IS_COPIED = 1, 2
#: Names of dtypes by DLPack's code and bits.
_NAMES = {row.dlpack: row.name for row in DTYPES.values()}


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


def _capsule_function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


#: By the capsule's address: in its destructor it is no object any more.
_Address = ctypes.c_void_p
_new = _capsule_function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_name_of = _capsule_function("PyCapsule_GetName", ctypes.c_char_p, _Address)
_pointer_of = _capsule_function("PyCapsule_GetPointer", ctypes.c_void_p, _Address, ctypes.c_char_p)
_set_name = _capsule_function("PyCapsule_SetName", ctypes.c_int, _Address, ctypes.c_char_p)

_OLD, _NEW = immortal(b"dltensor"), immortal(b"dltensor_versioned")
_USED = {_OLD: immortal(b"used_dltensor"), _NEW: immortal(b"used_dltensor_versioned")}
_STRUCTURES: dict[bytes, type[_Managed] | type[_Versioned]] = {_OLD: _Managed, _NEW: _Versioned}

#: Exported structures by address, each with what it needs.
_exported: dict[int, tuple[Any, ...]] = {}


def _delete(address: int) -> None:
    """The deleter of every exported structure."""
    _exported.pop(address, None)


def _forget_capsule(capsule: int) -> None:
    """The destructor of every capsule of ours: one that nobody consumed takes its structure along."""
    name = _name_of(capsule)
    if name in _STRUCTURES:
        _delete(_pointer_of(capsule, name))


_callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_DELETER, _DESTRUCTOR = error_safe(_delete), error_safe(_forget_capsule)


@atexit.register
def _keep_what_is_lent() -> None:
    """At exit: consumers may read these structures for ever (see the module)."""
    for lent in _exported.values():
        immortal(lent)


def export_capsule(tensor: Tensor, owner: object, max_version: tuple[int, int] | None) -> Any:
    """A capsule of ``tensor``; ``owner`` is held until the consumer is done with it.

    The capsule is versioned if ``max_version``, the newest that the consumer knows, allows it.

    Raises:
        BufferError: the array is read-only, and an old capsule cannot say so.
    """
    versioned = max_version is not None and max_version[0] >= VERSION[0]
    if tensor.read_only and not versioned:
        raise BufferError(
            "the array is read-only, and only a consumer that asks for max_version=(1, 0) or later can be told; "
            "copy=True exports a copy"
        )
    ndim = len(tensor.shape)
    lengths = (ctypes.c_int64 * (2 * ndim))(*tensor.shape, *_in_elements(tensor))
    at_strides = ctypes.byref(lengths, 8 * ndim)
    structure: Any
    if versioned:
        flags = (_READ_ONLY if tensor.read_only else 0) | (_IS_COPIED if tensor.copied else 0)
        structure = _Versioned(major=VERSION[0], minor=VERSION[1], flags=flags)
    else:
        structure = _Managed()
    structure.deleter = _DELETER
    described = structure.tensor
    described.data = tensor.address
    described.device_type, described.device_id = tensor.device
    described.ndim = ndim
    described.code, described.bits = row_of(tensor.dtype).dlpack
    described.lanes = 1
    described.shape = ctypes.cast(lengths, ctypes.POINTER(ctypes.c_int64))
    described.strides = ctypes.cast(at_strides, ctypes.POINTER(ctypes.c_int64))
    address = ctypes.addressof(structure)
    _exported[address] = structure, lengths, owner
    return _new(address, _NEW if versioned else _OLD, _DESTRUCTOR)


def _in_elements(tensor: Tensor) -> list[int]:
    """Strides in elements, as DLPack has them.

    Strides of dimensions with at most one element do not matter, and consumers compare them: they get those of C order.
    """
    itemsize = tensor.dtype.itemsize
    packed = packed_strides(tensor.shape, itemsize)
    if 0 in tensor.shape:
        return [stride // itemsize for stride in packed]
    steps = []
    for length, stride, usual in zip(tensor.shape, tensor.strides, packed, strict=True):
        if length != 1 and stride % itemsize:
            raise BufferError(f"strides {tensor.strides} are no multiples of {itemsize} bytes, which DLPack cannot say")
        steps.append((usual if length == 1 else stride) // itemsize)
    return steps


@until_exit
class Imported:
    """The consumer's half of a capsule: gives the memory back to its producer when nobody holds this any more.

    Attributes:
        is_versioned: whether the producer could say that the memory is read-only.
    """

    __slots__ = ("_address", "_deleter", "is_versioned", "tensor")

    def __init__(self, address: int, structure: Any, tensor: Tensor) -> None:
        self._address = address
        self._deleter = structure.deleter
        self.tensor = tensor
        self.is_versioned = isinstance(structure, _Versioned)

    def __del__(self) -> None:
        if self._deleter:
            _callback(self._deleter)(self._address)


def import_capsule(capsule: Any) -> Imported:
    """Consume a capsule.

    Raises:
        BufferError: it is used up, or of a version or a dtype that is not known here; then it is left as it was.
        ModuleNotFoundError: its dtype is defined by a package that is not installed; then, too.
    """
    try:
        name = _name_of(id(capsule))
        structure_type = _STRUCTURES[name]
    except (ValueError, KeyError):
        raise BufferError(f"{capsule!r}: expected an unused DLPack capsule") from None
    address = _pointer_of(id(capsule), name)
    structure: Any = structure_type.from_address(address)
    flags = 0
    if name == _NEW:
        if structure.major != VERSION[0]:
            raise BufferError(f"DLPack {structure.major}.{structure.minor}: only 1.x is known here")
        flags = structure.flags
    tensor = _read(structure.tensor, flags)
    _set_name(id(capsule), _USED[name])
    return Imported(address, structure, tensor)


def _read(tensor: Any, flags: int) -> Tensor:
    dtype_name = _NAMES.get((tensor.code, tensor.bits))
    if dtype_name is None or tensor.lanes != 1:
        raise BufferError(f"DLPack dtype code {tensor.code}, {tensor.bits} bits × {tensor.lanes}: no array here has it")
    dtype = dtype_named(dtype_name)
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    strides = packed_strides(shape, dtype.itemsize)
    if tensor.strides and tensor.ndim:
        strides = tuple(step * dtype.itemsize for step in tensor.strides[: tensor.ndim])
    device = tensor.device_type, tensor.device_id
    address = (tensor.data or 0) + tensor.byte_offset
    return Tensor(address, device, dtype, shape, strides, bool(flags & _READ_ONLY), bool(flags & _IS_COPIED))

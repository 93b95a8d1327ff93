"""Objects of Python as native code sees them: where they have what, and the C functions for them.

**Problem.** What Python does in a dozen steps of its interpreter, to look at a few objects and to call one, takes a native
function a fraction of the time. It is given objects as they are, by its caller, who has the GIL.

**What an object is.** The struct at its address, a view of what it is to Python. A class with ``__slots__`` keeps each of them
at an offset that was chosen when it was made, which :func:`slot` reads::

    class ArrayView(Object):
        form: FormView = slot(Array, "_form")

So native code has those offsets as constants: they belong to the key of the code (:func:`offsets_of`).

**References.** What is borrowed stays as long as who has it does: the arguments for a call's length, a slot until somebody else
may run. A call of a C function that runs Python's code may do anything: what is needed behind it, and not an argument, needs a
reference. Results of C functions are new references, but for those of which it is said otherwise.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

from aiodev._native.compile import External, inner, int32, int64, intrinsic, void
from aiodev._native.fields import Cell, Struct, at, words

__all__ = [
    "OBJECTS", "TABLE", "Bytes", "Float", "Int", "List", "MemoryView", "Object", "Partial", "Slice", "Tuple", "adjust_bounds",
    "allocate_object", "append", "as_int", "call", "call_method", "check_layouts", "clear_error", "decrement",
    "dict_default", "dict_item", "dict_length", "error_is_set", "error_matches", "fetch_error", "frame_back", "frame_code",
    "frame_offset", "get_attribute", "get_place", "increment", "is_subclass", "is_true", "new_bytes", "new_int",
    "new_method", "new_tuple", "normalize_error", "offsets_of", "read_bounds", "read_context", "restore_error",
    "running_frame", "show_error", "slot", "untrack",
]  # fmt: skip

#: The symbol of the table that a module of native code has, and the objects whose addresses it holds. Behind them is the one
#: that whoever loads the code has given it.
TABLE = "aiodev_objects"
OBJECTS: tuple[Any, ...] = (MemoryError, TypeError, bytes, None, int)


class Object(Struct):
    """CPython's ``PyObject``."""

    references: int
    type: int  #: address of its class


class Tuple(Object):
    """A tuple, from whose items nothing is taken away while somebody has a reference to it."""

    length: int
    items: Cell[int] = words(0)


class List(Object):
    """A list. To take its last item away is to say that it is shorter by one."""

    length: int
    items: int  #: address of their addresses


class Bytes(Object):
    """A ``bytes``."""

    length: int
    hash: int
    content: Cell[int] = words(0)


class MemoryView(Object):
    """A ``memoryview`` of words that lie one behind the other."""

    content: int = at(7 * 8)  #: address of the first


class Slice(Object):
    """A ``slice``: any objects."""

    start: int
    stop: int
    step: int


class Int(Object):
    """An int."""

    size: int  #: of how many digits it is, as this Python writes that
    digits: int  #: of 30 bits, each in half a word: the first two


class Partial(Object):
    """A ``functools.partial``."""

    function: int
    arguments: Tuple


class Float(Object):
    """A float."""

    bits: int  #: of the number, as ``float64`` has them


#: Sizes of ints that are not less than 0: of 0, and of one and two digits.
_ZERO, _SHORT, _ADDRESS = (0, 1, 2) if sys.version_info < (3, 12) else (1, 8, 16)
_DIGIT_BITS = 30
_DIGIT = (1 << _DIGIT_BITS) - 1


@intrinsic
def _int_class(builder: Any) -> Any:
    """The class of ints."""
    from llvmlite import ir

    place = [ir.Constant(ir.IntType(32), number) for number in (0, OBJECTS.index(int))]
    return builder.load(builder.gep(builder.module.globals[TABLE], place))


@inner
def as_int(number: int) -> int:
    """An integer as a word; -1, with an exception set, where it is too large, or none. Short ints are read where they lie."""
    if Object(number).type == _int_class():
        value = _short(Int(number))
        if value >= 0:
            return value
    return _as_int(number)


@inner
def _short(number: Int) -> int:
    """An int of up to two digits, which is not less than 0; -1 for any other."""
    if number.size == _SHORT:
        return number.digits & _DIGIT
    if number.size == _ADDRESS:
        return (number.digits & _DIGIT) | (number.digits >> 32 << _DIGIT_BITS)
    return 0 if number.size == _ZERO else -1


def slot(owner: type, name: str) -> Any:
    """A field for what a class keeps in one of its ``__slots__``: an object's address, or 0 where it is not set."""
    return at(_offset_of(vars(owner)[name]))


def _offset_of(descriptor: Any) -> int:
    """Where the slot of a ``PyMemberDescrObject`` is: its ``d_member`` comes behind a ``PyDescrObject`` of five words."""
    member = ctypes.c_int64.from_address(id(descriptor) + 5 * 8).value
    return ctypes.c_int64.from_address(member + 2 * 8).value  # of a ``PyMemberDef``: name, type, offset


def offsets_of(*views: type[Struct]) -> str:
    """Where the fields of these are, and what Python they are of: for the key of code that reads them."""
    places = [(view.__name__, [(field.name, field.offset) for field in view.fields.values()]) for view in views]
    return f"{sys.implementation.cache_tag} {getattr(sys, 'abiflags', '')} {places}"


def _reads_ints() -> bool:
    """Whether ints that are read where they lie are these."""
    read = _short.py_func  # type: ignore[attr-defined]
    numbers = 0, 1, 255, _DIGIT, 1 << 30, 1 << 31, (1 << 47) + 7, (1 << 60) - 1
    return all(read(Int(id(number))) == number for number in numbers) and read(Int(id(-5))) == read(Int(id(1 << 60))) == -1


class _Probe:
    __slots__ = ("first", "second")

    second: object


class _ProbeView(Object):
    second: int = slot(_Probe, "second")


def check_layouts() -> None:
    """See that objects are what this module takes them for.

    Raises:
        NotImplementedError: this Python has others.
    """
    value, made, data = object(), _Probe(), b"12345678"
    made.second = value
    pair, several, part, view = (value, made), [value, made], slice(value, made, data), memoryview(data).cast("q")
    bound = functools.partial(print, value, made)
    found = [
        sys.implementation.name == "cpython",
        _ProbeView(id(made)).second == id(value),
        Object(id(made)).type == id(_Probe),
        Tuple(id(pair)).length == 2 and Tuple(id(pair)).items[1].value == id(made),
        List(id(several)).length == 2 and Cell(List(id(several)).items)[1].value == id(made),
        (Slice(id(part)).start, Slice(id(part)).stop, Slice(id(part)).step) == (id(value), id(made), id(data)),
        _reads_ints(),
        Float(id(1.5)).bits == 0x3FF8 << 48,
        Partial(id(bound)).function == id(print) and Partial(id(bound)).arguments.items[1].value == id(made),
        Cell(MemoryView(id(view)).content).value == view[0],
        Bytes(id(data)).length == 8 and Bytes(id(data)).content[0].value == int.from_bytes(data, sys.byteorder),
    ]
    if not all(found):
        raise NotImplementedError(f"{sys.implementation.cache_tag} has objects of another layout")


# Functions of the interpreter, by what they do. What they are called with is borrowed.

increment = External("Py_IncRef", void(int64))
decrement = External("Py_DecRef", void(int64))
_as_int = External("PyLong_AsLongLong", int64(int64))
#: Of a slice, and where its start, stop and step go; -1 with an exception.
read_bounds = External("PySlice_Unpack", int32(int64, int64, int64, int64))
#: Has a length, where start and stop are, which become those of that length, and a step; gives how many there are.
adjust_bounds = External("PySlice_AdjustIndices", int64(int64, int64, int64, int64))
new_int = External("PyLong_FromLongLong", int64(int64))
#: With 0 for its content, which is to be written at once.
new_bytes = External("PyBytes_FromStringAndSize", int64(int64, int64))
#: Without items, which are to be written at once.
new_tuple = External("PyTuple_New", int64(int64))
#: A function bound to an object.
new_method = External("PyMethod_New", int64(int64, int64))
#: -1 with an exception.
is_true = External("PyObject_IsTrue", int32(int64))
#: ``owner.name``; 0 with an exception.
get_attribute = External("PyObject_GetAttr", int64(int64, int64))
#: An item by its number; 0 with an exception.
get_place = External("PySequence_GetItem", int64(int64, int64))
#: To a list; not 0 with an exception.
append = External("PyList_Append", int32(int64, int64))
#: An instance of a class, its slots not set; the second argument is 0.
allocate_object = External("PyType_GenericAlloc", int64(int64, int64))
#: Tell the collector that an object, as one that refers to none that could refer to it, is in no cycle.
untrack = External("PyObject_GC_UnTrack", void(int64))
is_subclass = External("PyType_IsSubtype", int32(int64, int64))
#: A callable; the address of the arguments' addresses, how many there are by position, and the tuple of the others' names or 0.
call = External("PyObject_Vectorcall", int64(int64, int64, int64, int64))
#: By the method's name; the first argument is whose method it is.
call_method = External("PyObject_VectorcallMethod", int64(int64, int64, int64, int64))
#: A borrowed reference; 0 where there is no such key, or with an exception.
dict_item = External("PyDict_GetItemWithError", int64(int64, int64))
#: What a dict has for a key, which it is given if it has nothing: a borrowed reference; 0 with an exception.
dict_default = External("PyDict_SetDefault", int64(int64, int64, int64))
dict_length = External("PyDict_Size", int64(int64))
#: A variable, a default or 0, and where the value's address goes; not 0 with an exception.
read_context = External("PyContextVar_Get", int32(int64, int64, int64))
#: The frame that has called the native function, borrowed; 0 if there is none.
running_frame = External("PyEval_GetFrame", int64())
frame_code = External("PyFrame_GetCode", int64(int64))
#: A new reference; 0 where it is the first one.
frame_back = External("PyFrame_GetBack", int64(int64))
frame_offset = External("PyFrame_GetLasti", int32(int64))
#: The exception that is set, as class, value and traceback: three addresses, where they go, or to be taken.
fetch_error = External("PyErr_Fetch", void(int64, int64, int64))
normalize_error = External("PyErr_NormalizeException", void(int64, int64, int64))
restore_error = External("PyErr_Restore", void(int64, int64, int64))
#: 0 where no exception is set.
error_is_set = External("PyErr_Occurred", int64())
#: Whether the exception that is set is of a class.
error_matches = External("PyErr_ExceptionMatches", int32(int64))
clear_error = External("PyErr_Clear", void())
#: Have the exception that is set shown as one that nobody can be given; the object is what it happened in.
show_error = External("PyErr_WriteUnraisable", void(int64))

"""The types of a launch: what its arguments are, what a kernel is compiled for, and how scalars are packed.

Python scalars are weak (NEP 50): they have no type of their own, and take that of the arrays that the body combines them
with. So ``2.0`` beside ``float32`` arrays is a ``float32``, and the loop stays in single precision. NumPy scalars keep their
type. A Python int becomes a float only where every use of it is in a sum or a product with elements of floating arrays; it
stays an ``int64`` where it may be an index, a bound or a divisor. A ``bfloat16`` is passed as the ``float32`` that it is.

The argument block of a launch: the shape, the scalars in order, the arrays in order, all in little-endian 8-byte words.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy

from aiodev._array.dtypes import has_dtype, row_of
from aiodev._core.backend.device import Device
from aiodev._core.dtypes import DTYPES, element_type
from aiodev._core.errors import LaunchError
from aiodev._kernel.analysis.source import BodyUse
from aiodev._memory.buffer import why_read_only

__all__ = [
    "ARRAY", "ARRAYS", "COMPLEX", "DOUBLE", "FORMATS", "READ", "SCALAR", "SINGLE", "Signature", "describe", "key_of",
    "number_form", "packer_of",
]  # fmt: skip

#: What an argument is, to a launch: an array, an array that is surely not written, a scalar of one number, one of two.
ARRAY, READ, SCALAR, COMPLEX = "A", "R", "S", "Z"
ARRAYS = ARRAY + READ

#: How scalars of each type are packed, in words of 8 bytes; complex ones as two numbers.
FORMATS = {code: row.packing for code, row in DTYPES.items() if row.packing}
#: Forms of numbers that are no ints, less than those of ints.
SINGLE, DOUBLE = 1, 2
_CONTIGUOUS_COPY = "aiodev.asarray(value, device={device!r}) copies it there"


class Signature(NamedTuple):
    """The types of one launch.

    Attributes:
        descriptors: one for each argument, as in ``KernelSpec``.
        pattern: what each argument is: ``ARRAY``, ``READ``, ``SCALAR`` or ``COMPLEX``.
        pack: packs the shape's words and then the scalars' numbers.
    """

    descriptors: tuple[str, ...]
    pattern: str
    pack: Callable[..., bytes]

    def numbers(self, args: Sequence[Any]) -> list[Any]:
        """The scalars among ``args``, complex ones as two numbers."""
        numbers: list[Any] = []
        for kind, value in zip(self.pattern, args, strict=True):
            if kind == SCALAR:
                numbers.append(value)
            elif kind == COMPLEX:
                numbers += (value.real, value.imag)
        return numbers


@functools.lru_cache(64)
def packer_of(code: str) -> Callable[[Any], bytes]:
    """From a number to the bytes of an argument, by the code of its type.

    It raises what ``struct`` raises, where the number does not fit.
    """
    pack = struct.Struct("<" + FORMATS[code]).pack
    return (lambda value: pack(value.real, value.imag)) if code[0] == "c" else pack


def number_form(code: str) -> int:
    """What native code writes an int or a float as, by the code of the type.

    It is ``SINGLE`` or ``DOUBLE``, how many bits an int of the type has, or as a negative number one without a sign; else 0.
    """
    row = DTYPES[code]
    if row.kind == "f":
        return {"f4": SINGLE, "f8": DOUBLE}.get(code, 0)
    return {"i": 8, "u": -8}.get(row.kind, 0) * row.itemsize


def key_of(value: Any) -> Any:
    """What kernels are compiled for where ``value`` is an array: (device, descriptor, writable); else None."""
    try:
        return value._form.key
    except AttributeError:
        return None


def describe(
    kernel: str, ndim: int, names: Sequence[str], args: Sequence[Any], device: Device, use: BodyUse
) -> Signature:
    """The signature of a launch on ``device``.

    ``use`` gives the body's use of its parameters.

    Raises:
        LaunchError: an argument is not one, or not on ``device``, or read-only where the body writes.
    """
    arrays: dict[str, str] = {}
    for name, value in zip(names, args, strict=True):
        if key_of(value) is not None:
            arrays[name] = _array_descriptor(kernel, name, value, device, use)
    only_read = use.only_read({name: _ndim(descriptor) for name, descriptor in arrays.items()})
    descriptors, pattern = [], ""
    for name, value in zip(names, args, strict=True):
        if name in arrays:
            descriptor = arrays[name]
            descriptors.append(descriptor)
            pattern += READ if descriptor.endswith("r") or name in only_read else ARRAY
        else:
            code = _scalar_code(kernel, name, value, arrays, device, use)
            descriptors.append(code)
            pattern += COMPLEX if code[0] == "c" else SCALAR
    formats = "".join(FORMATS[code] for code in descriptors if code in FORMATS)
    return Signature(tuple(descriptors), pattern, struct.Struct(f"<{ndim}q{formats}").pack)


def _array_descriptor(kernel: str, name: str, array: Any, device: Device, use: BodyUse) -> str:
    where, descriptor, writable = key_of(array)
    if where != device:
        raise LaunchError(kernel, name, f"an array on {device}", f"{where}")
    if writable:
        return str(descriptor)
    if name in use.written:
        raise LaunchError(kernel, name, "an array that can be written to", f"a read-only one{why_read_only(array)}")
    return f"{descriptor}r"


def _scalar_code(kernel: str, name: str, value: Any, arrays: dict[str, str], device: Device, use: BodyUse) -> str:
    if isinstance(value, numpy.generic):
        if has_dtype(value.dtype):
            row = row_of(value.dtype)
            return row.code if row.packing else element_type(row.computed).code
    elif isinstance(value, bool):
        return "b1"
    elif isinstance(value, int):
        return _weak_int(name, arrays, use) if arrays else "i8"
    elif isinstance(value, float):
        return _real(_partner_type(name, arrays, use)) if arrays else "f8"
    elif isinstance(value, complex):
        return _complex(_partner_type(name, arrays, use)) if arrays else "c16"
    raise LaunchError(kernel, name, f"a number or an array on {device}", _describe_argument(value, device))


def _describe_argument(value: Any, device: Device) -> str:
    if isinstance(value, numpy.ndarray):
        advice = _CONTIGUOUS_COPY.format(device=str(device))
        return f"a NumPy array in host memory ({value.dtype}, shape {value.shape}); {advice}"
    return f"{type(value).__name__} {value!r}" if value is not None else "None"


def _ndim(descriptor: str) -> int:
    return int(descriptor[1 : len(descriptor) - len(descriptor[1:].lstrip("0123456789"))])


def _dtype(descriptor: str) -> numpy.dtype[Any]:
    """What an array's elements are computed in."""
    return numpy.dtype(DTYPES[descriptor.lstrip("A").lstrip("0123456789").rstrip("rCA")].computed)


def _weak_int(name: str, arrays: dict[str, str], use: BodyUse) -> str:
    partners = [_dtype(arrays[array]) for array in use.partners.get(name, ()) if array in arrays]
    if name in use.integral or not partners:
        return "i8"
    if all(dtype == numpy.uint64 for dtype in partners):
        return "u8"  # with an int64 beside it, numba computes in float64
    return _real(numpy.result_type(*partners)) if all(dtype.kind in "fc" for dtype in partners) else "i8"


def _partner_type(name: str, arrays: dict[str, str], use: BodyUse) -> numpy.dtype[Any]:
    """The floating type that a weak float takes: that of the arrays it meets, else of all floating arrays."""
    every = {array: dtype for array, text in arrays.items() if (dtype := _dtype(text)).kind in "fc"}
    types = set(every.values())
    if len(types) > 1:
        types = {every[array] for array in use.partners.get(name, ()) if array in every} or types
    return numpy.result_type(*types) if types else numpy.dtype("f8")


def _real(dtype: numpy.dtype[Any]) -> str:
    itemsize = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    return "f8" if itemsize >= 8 else "f4"


def _complex(dtype: numpy.dtype[Any]) -> str:
    return "c16" if _real(dtype) == "f8" else "c8"

"""Dtypes as NumPy has them, and their rows in the table of element types (:mod:`aiodev._core.dtypes`).

``bfloat16`` is not one of NumPy's: ``ml_dtypes`` defines it, and is imported when it is first asked for. NumPy says of such a
dtype that its kind is ``V``, and takes a Python float beside it for a ``float16``. So whoever wants a kind, or the dtype of a
result, asks here. ``bfloat16`` is promoted as ``float16`` is, and with ``float16`` to ``float32``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aiodev._core.arguments import refusal
from aiodev._core.dtypes import DTYPES, ElementType, element_type
from aiodev._core.sigint import import_whole

__all__ = [
    "DEFAULT",
    "FOREIGN",
    "DType",
    "can_cast",
    "compute_dtype",
    "digits",
    "dtype_named",
    "has_dtype",
    "is_foreign",
    "is_stored_only",
    "kind",
    "kind_of_operand",
    "numpy_dtype",
    "parse_dtype",
    "resolve",
    "result_type",
    "row_of",
    "stand_ins",
    "word_dtype",
]

DType = np.dtype[Any]

#: The dtype of arrays that are made without one.
DEFAULT: DType = np.dtype(np.float64)

#: By name, those that other packages than NumPy define.
FOREIGN = {row.name: row for row in DTYPES.values() if row.package}
_HALF, _SINGLE, _BOOL = np.dtype(np.float16), np.dtype(np.float32), np.dtype(bool)
_DEFINED_ELSEWHERE = 2  #: what ``isbuiltin`` of such a dtype is
_known: dict[Any, DType] = {None: DEFAULT}
#: Rows by dtype: of NumPy's own from the start, of others from when they are first seen.
_rows: dict[DType, ElementType] = {np.dtype(row.name): row for row in DTYPES.values() if not row.package}
#: Each as the one object that forms know it by: NumPy makes others that equal it.
_natives: dict[DType, DType] = {dtype: dtype for dtype in _rows}
_dtypes: dict[str, DType] = {row.name: dtype for dtype, row in _rows.items()}


def numpy_dtype(dtype: Any) -> DType:
    """What NumPy takes for a dtype.

    Raises:
        TypeError: it takes it for none.
        ModuleNotFoundError: it is defined by a package that is not installed.
    """
    try:
        resolved: DType = _of_name(dtype) if isinstance(dtype, str) else np.dtype(dtype)
        return resolved
    except (TypeError, ValueError, SyntaxError):  # NumPy's own words name no argument
        raise refusal(None, "dtype", "what NumPy takes for a dtype, or None", dtype) from None


def parse_dtype(dtype: Any) -> DType:
    """The dtype that anything which NumPy takes for one means; None is float64.

    Raises:
        TypeError: no device has it.
        ModuleNotFoundError: it is defined by a package that is not installed.

    Example:
        >>> import aiodev.dtypes
        >>> aiodev.dtypes.parse_dtype(int), aiodev.dtypes.parse_dtype("bfloat16")
        (dtype('int64'), dtype(bfloat16))
    """
    try:
        return _known[dtype]
    except (KeyError, TypeError):
        given = numpy_dtype(dtype)
        native: DType = given.newbyteorder("=")
        if not has_dtype(native):
            raise TypeError(
                f"dtype {given}: device arrays hold booleans, integers, floats or complex numbers of at most 16 bytes"
            ) from None
        native = _natives.setdefault(native, native)
        if isinstance(dtype, type | str | np.dtype) and len(_known) < 256:
            _known[dtype] = native
        return native


def _of_name(name: str) -> DType:
    """The dtype of a name, which may be defined by another package."""
    row = FOREIGN.get(name)
    return np.dtype(name) if row is None else _defined(row)


def _defined(row: ElementType) -> DType:
    try:
        resolved: DType = np.dtype(getattr(import_whole(row.package), row.name))
        return resolved
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{row.name} is a dtype of {row.package}, which is not installed; `pip install {row.package}` adds it",
            name=row.package,
        ) from error


#: Weak numbers, by their classes.
_NUMBERS = (int, float, complex)
_CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")


def dtype_named(name: str) -> DType:
    """The dtype of a row."""
    dtype = _dtypes.get(name)
    return parse_dtype(name) if dtype is None else dtype


def row_of(dtype: DType) -> ElementType:
    """What the table says of a dtype.

    Raises:
        TypeError: no device has it.
    """
    if not isinstance(dtype, np.dtype):
        dtype = parse_dtype(dtype)
    known = _rows.get(dtype)
    if known is None:
        try:
            row = element_type(dtype.name)
        except KeyError:
            row = None
        if row is None or not row.package or not dtype.isnative or _defined(row) != dtype:
            raise TypeError(f"dtype {dtype}: no device has it")
        known = _rows.setdefault(dtype, row)
    return known


def has_dtype(dtype: DType) -> bool:
    """Whether devices have it."""
    try:
        row_of(dtype)
    except TypeError:
        return False
    return True


def is_foreign(dtype: DType) -> bool:
    """Whether another package than NumPy defines it: NumPy's protocols do not know it by its name then."""
    return dtype.isbuiltin == _DEFINED_ELSEWHERE


def kind(dtype: DType) -> str:
    """``b``, ``i``, ``u``, ``f`` or ``c``; of what devices do not have, what NumPy says.

    Example:
        >>> import aiodev.dtypes, numpy
        >>> aiodev.dtypes.kind(numpy.dtype("float16")), aiodev.dtypes.kind(aiodev.bfloat16), aiodev.bfloat16.kind
        ('f', 'f', 'V')
    """
    if not isinstance(dtype, np.dtype):
        dtype = numpy_dtype(dtype)
    row = _rows.get(dtype)
    if row is not None:
        return row.kind
    return row_of(dtype).kind if has_dtype(dtype) else dtype.kind


def compute_dtype(dtype: DType) -> DType:
    """What kernels compute in: ``float32`` for ``float16`` and ``bfloat16``, else the dtype itself.

    Raises:
        TypeError: no device has it.

    Example:
        >>> import aiodev.dtypes, numpy
        >>> aiodev.dtypes.compute_dtype(aiodev.bfloat16), aiodev.dtypes.compute_dtype(numpy.dtype("int16"))
        (dtype('float32'), dtype('int16'))
    """
    row = row_of(dtype)
    return dtype_named(row.computed) if row.is_stored_only else dtype


def is_stored_only(dtype: DType) -> bool:
    """Whether it is computed in another dtype, which elements become when they are loaded.

    Raises:
        TypeError: no device has it.

    Example:
        >>> import aiodev.dtypes, numpy
        >>> aiodev.dtypes.is_stored_only(aiodev.bfloat16), aiodev.dtypes.is_stored_only(numpy.dtype("float32"))
        (True, False)
    """
    return row_of(dtype).is_stored_only


def word_dtype(itemsize: int) -> DType:
    """What elements of a size are moved as: unsigned integers, which nothing changes on the way; of 16 bytes two floats."""
    return np.dtype("c16" if itemsize == 16 else f"u{itemsize}")


def digits(dtype: DType) -> int:
    """Binary digits of a number, without its sign and exponent: floats count up to ``2**digits``, integers to one less.

    Example:
        >>> import aiodev.dtypes, numpy
        >>> aiodev.dtypes.digits(aiodev.bfloat16), aiodev.dtypes.digits(numpy.dtype("float32"))
        (8, 24)
    """
    return row_of(dtype).digits


# Promotion


def kind_of_operand(operand: Any) -> Any:
    """What types follow from: a dtype, that of an array or of one of NumPy's numbers, or the class of a Python number.

    A truth value is no weak number: NumPy has one type for those. A number of one's own class is one of Python's.

    Example:
        >>> from aiodev import dtypes
        >>> dtypes.kind_of_operand(2.5), dtypes.kind_of_operand(True)
        (<class 'float'>, dtype('bool'))
    """
    if isinstance(operand, np.dtype | type | str):
        return operand
    if isinstance(operand, bool):
        return _BOOL
    weak = next((number for number in _NUMBERS if isinstance(operand, number) and not isinstance(operand, np.generic)), None)
    if weak is not None:
        return weak
    operand_kind = getattr(operand, "dtype", operand)
    return operand_kind if isinstance(operand_kind, np.dtype) else operand


def result_type(*operands: Any) -> DType:
    """The common dtype of dtypes, arrays and numbers; Python's are weak, given as they are or as their classes.

    It is NumPy's (NEP 50), for ``bfloat16`` too: that of ``float16``, which two of ``bfloat16`` have in common with each other.
    Two dtypes that are stored only, and differ, have ``float32`` in common.

    Raises:
        TypeError: there is none.

    Example:
        >>> import aiodev.dtypes, numpy
        >>> aiodev.dtypes.result_type(aiodev.bfloat16, float), aiodev.dtypes.result_type(aiodev.bfloat16, numpy.dtype("f2"))
        (dtype(bfloat16), dtype('float32'))
    """
    if len(operands) == 2 and isinstance(operands[0], np.dtype) and isinstance(operands[1], np.dtype):
        return _common(*operands)
    return _common_of(operands)


@functools.lru_cache(1024)
def _common(first: DType, second: DType) -> DType:
    """The common dtype of two, which calls of any shape ask for."""
    return _common_of((first, second))


def _common_of(operands: Sequence[Any]) -> DType:
    """The common dtype of operands, found out anew."""
    shown, meant = stand_ins([kind_of_operand(operand) for operand in operands])
    try:
        numbers = [one(1) if isinstance(one, type) and one in _NUMBERS else numpy_dtype(one) for one in shown]
        return meant(np.result_type(*numbers))
    except (TypeError, ValueError) as error:
        raise TypeError(f"result_type: {error}") from None


def resolve(ufunc: np.ufunc, *operands: Any) -> tuple[DType, ...]:
    """What a ufunc takes and gives: the dtype of each operand (see :func:`result_type`), and that of the result, last.

    Raises:
        TypeError: it is not defined for these.

    Example:
        >>> import aiodev.dtypes, numpy
        >>> aiodev.dtypes.resolve(numpy.less, aiodev.bfloat16, float)
        (dtype(bfloat16), dtype(bfloat16), dtype('bool'))
    """
    if not isinstance(ufunc, np.ufunc):
        raise refusal("resolve", "ufunc", "one of NumPy's ufuncs", ufunc)
    shown, meant = stand_ins(operands)
    try:
        return tuple(map(meant, ufunc.resolve_dtypes((*shown, None))))
    except (TypeError, ValueError) as error:
        raise TypeError(f"resolve: {ufunc.__name__}: {error}") from None


def can_cast(from_: Any, to: Any, /, casting: Any = "safe") -> bool:
    """Whether NumPy's rule of that name lets elements be converted; ``bfloat16`` is as ``float16`` to all but that.

    Args:
        from_: a dtype, or an array.
        to: a dtype.
        casting: ``"safe"``: no number changes. ``"same_kind"``: floats may lose digits, and become complex numbers, but not
            integers. And ``"no"``, ``"equiv"`` and ``"unsafe"``.

    Raises:
        TypeError: one is no dtype, or there is no such rule.

    Example:
        >>> import aiodev.dtypes, numpy
        >>> aiodev.dtypes.can_cast("float64", aiodev.bfloat16), aiodev.dtypes.can_cast("float64", aiodev.bfloat16, "same_kind")
        (False, True)
    """
    try:
        given, wanted = (each if isinstance(each, np.dtype) else numpy_dtype(each) for each in (kind_of_operand(from_), to))
    except TypeError as error:
        raise TypeError(f"can_cast: {error}") from None
    if not isinstance(casting, str) or casting not in _CASTINGS:
        raise refusal("can_cast", "casting", f"one of {', '.join(_CASTINGS)}", casting)
    if given == wanted:
        return True
    if casting not in ("same_kind", "unsafe"):
        if {given.name, wanted.name} <= {_HALF.name, *FOREIGN}:  # of any two of these one lacks numbers of the other
            return False
        if wanted.name in FOREIGN and has_dtype(given) and row_of(given).digits > row_of(wanted).digits:
            return False
    (one, other), _ = stand_ins((given, wanted))
    return np.can_cast(one, other, casting)  # type: ignore[arg-type]


def stand_ins(operands: Sequence[Any]) -> tuple[list[Any], Callable[[DType], DType]]:
    """Operands as NumPy can promote them, and what the dtype of a result means that it finds for these.

    Example:
        >>> import aiodev.dtypes, numpy
        >>> shown, meant = aiodev.dtypes.stand_ins([aiodev.bfloat16, int])
        >>> shown, meant(numpy.dtype("float16"))
        ([dtype('float16'), <class 'int'>], dtype(bfloat16))
    """
    if not isinstance(operands, Sequence):
        raise refusal("stand_ins", "operands", "a sequence of dtypes and classes of numbers", operands)
    foreign = {o for o in operands if isinstance(o, np.dtype) and is_foreign(o) and has_dtype(o)}
    if not foreign:
        return list(operands), _same
    half = any(isinstance(o, np.dtype) and o == _HALF for o in operands)
    stand_in = _SINGLE if half or len(foreign) > 1 else _HALF
    shown = [stand_in if isinstance(o, np.dtype) and o in foreign else o for o in operands]
    (one, *_) = foreign
    return shown, lambda dtype: one if dtype == _HALF else dtype


def _same(dtype: DType) -> DType:
    return dtype

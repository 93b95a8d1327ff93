"""Uniformity: whether every index of a body takes about as long as any other, since its code has no loop and calls none.

Branches may differ by what is in them, which is bounded; operations on whole arrays take as long for one index as for the next.
A function that is not known might loop, or wait. Most functions of NumPy loop, some as often as an argument says. The
analysis needs the code object alone, so it works where there is no source, and takes a few microseconds.
"""

from __future__ import annotations

import builtins
import dis
import math
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy

import aiodev.lang
from aiodev.lang import atomics, elementary, hints, numeric

__all__ = ["is_loop_free", "mentions_known"]

#: Instructions that repeat something, cut out a part that may be of any length, or do what is looked at elsewhere.
_OTHER = frozenset(
    number
    for number, name in enumerate(dis.opname)
    if any(part in name for part in ("BACKWARD", "SLICE", "ITER", "YIELD", "WITH", "IMPORT", "CONTAINS"))
) | {dis.opmap["MAKE_FUNCTION"]}
_BUILTINS = (abs, bool, complex, float, int, len, max, min, pow, round)
_MODULES = (aiodev, aiodev.lang, math, numpy)
_LANG = frozenset(name for module in (atomics, elementary, hints, numeric) for name in module.__all__)
#: Functions of NumPy that are no ufuncs, and of an element where they are given one; and all names that are like that.
_ELEMENTWISE = frozenset({"angle", "around", "clip", "imag", "nan_to_num", "real", "round", "sinc", "where"})
_NUMPY = _ELEMENTWISE | {
    name
    for name, value in vars(numpy).items()
    if isinstance(value, numpy.ufunc | float) or (isinstance(value, type) and issubclass(value, numpy.generic))
}
#: What is asked of arrays, and of the modules above.
_ATTRIBUTES = _LANG | vars(math).keys() | _NUMPY | {"T", "dtype", "imag", "lang", "ndim", "real", "shape", "size"}
_ABSENT = object()
_DEPTH = 10


def is_loop_free(function: Any, depth: int = _DEPTH) -> bool:
    """Whether ``function``, and all that it calls, runs without a loop."""
    code: CodeType = function.__code__
    return depth > 0 and _OTHER.isdisjoint(code.co_code[::2]) and mentions_known(function, depth)


def mentions_known(function: Any, depth: int = _DEPTH, also: tuple[Any, ...] = ()) -> bool:
    """Whether what ``function`` mentions, but for its own loops and for what is in ``also``, takes as long for each index."""
    code: CodeType = function.__code__
    try:
        cells = {name: cell.cell_contents for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)}
    except ValueError:  # one is empty
        return False
    if not _is_known((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()), depth):
        return False
    for name in (*cells, *code.co_names):
        value = cells.get(name, function.__globals__.get(name, vars(builtins).get(name, _ABSENT)))
        if any(value is each for each in also):  # not ``in``: arrays compare by element
            continue
        if name not in _ATTRIBUTES if value is _ABSENT else not _is_known(value, depth):
            return False
    return True


def _is_known(value: Any, depth: int) -> bool:
    """Whether a body that mentions ``value`` loops no more for one index than for another, however it uses it."""
    if isinstance(value, ModuleType):
        return value in _MODULES
    if isinstance(value, tuple):  # of functions, perhaps
        return all(_is_known(part, depth) for part in value)
    if isinstance(value, type):
        return value in _BUILTINS or issubclass(value, numpy.generic | BaseException)
    if not callable(value):
        return True
    module = getattr(value, "__module__", None) or ""
    if module.startswith("aiodev.lang"):
        return getattr(value, "__name__", "") in _LANG
    body = getattr(value, "__aiodev_body__", getattr(value, "py_func", value))
    if isinstance(body, FunctionType) and module.partition(".")[0] != "numpy":
        return is_loop_free(body, depth - 1)
    if module.partition(".")[0] == "numpy":
        return isinstance(value, numpy.ufunc) or getattr(value, "__name__", "") in _ELEMENTWISE
    return value in _BUILTINS or isinstance(value, numpy.ufunc) or module == "math"

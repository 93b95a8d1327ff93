"""Plans of reductions for each dtype: what elements become, how they are combined, and the kernels that follow."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from aiodev.dtypes import kind as kind_of
from aiodev.kernels.reductions import accumulators as elements, bodies
from aiodev.kernels.reductions.arg_extreme import ArgExtreme, make_arg_extreme
from aiodev.kernels.reductions.bodies import Kernels
from aiodev.kernels.reductions.variance import Variance, make_variance

__all__ = [
    "DType",
    "Plan",
    "count_plan",
    "extreme_plan",
    "arg_extreme_plan",
    "variance_plan",
    "sum_plan",
    "truth_plan",
]

DType = np.dtype[Any]


class Plan(NamedTuple):
    """How to reduce one dtype."""

    load: Any
    combine: Any
    kernels: Kernels
    identity: Any  #: of the type that is combined
    result: DType
    parts: DType  #: of results that are reduced once more, by the next plan
    next: Callable[[], Plan]


class VariancePlan(NamedTuple):
    """How to measure the spread of one dtype."""

    kernels: Variance
    mean: DType  #: of means
    result: DType


class ArgExtremePlan(NamedTuple):
    """How to find the place of the largest or the least element of one dtype."""

    kernels: ArgExtreme
    key: DType  #: of what is compared


@functools.cache
def sum_plan(name: str, dtype: DType, wanted: DType | None) -> Plan:
    """Of a sum, a product or a mean."""
    if wanted is None:
        if name == "mean":
            wanted = np.dtype(np.float64) if dtype.kind in "biu" else dtype
        else:
            wanted = {"b": np.dtype(np.int64), "i": np.dtype(np.int64), "u": np.dtype(np.uint64)}.get(dtype.kind, dtype)
    if kind_of(wanted) not in "biufc":
        raise TypeError(f"{name}: dtype {wanted}: expected a boolean, integer, floating or complex type")
    kind = kind_of(wanted) if name != "mean" or kind_of(dtype) in "fc" else "f"
    if dtype.kind == "c" and kind != "c":
        raise TypeError(f"{name}: dtype {wanted}: complex numbers cannot be summed as that")
    if kind == "b":  # elements become truth values first, as in NumPy
        return truth_plan("all" if name == "prod" else "any", dtype)
    load, combined = {
        "i": (elements.signed, np.int64),
        "u": (elements.unsigned, np.uint64),
        "f": (elements.double, np.float64),
        "c": (elements.double_complex, np.complex128),
    }[kind]
    combine, identity = (elements.multiply, 1) if name == "prod" else (elements.add, 0)
    finish = elements.mean_of if name == "mean" else elements.total_of
    sums = combine is elements.add and dtype in (np.float32, np.float64) and kind == "f"
    four = elements.four_floats if sums and dtype == wanted else None
    kernels = _kernels(name, load, combine, finish, combined(identity), four, sums)
    wide = np.dtype(combined)
    return Plan(load, combine, kernels, combined(identity), wanted, wide, lambda: sum_plan(name, wide, wanted))


@functools.cache
def truth_plan(name: str, dtype: DType) -> Plan:
    """Of ``any`` and ``all``."""
    combine = elements.either if name == "any" else elements.both
    identity = np.uint8(name == "all")
    kernels = _kernels(name, elements.truth, combine, elements.total_of, identity)
    result = np.dtype(bool)
    return Plan(elements.truth, combine, kernels, identity, result, result, lambda: truth_plan(name, result))


@functools.cache
def count_plan(dtype: DType) -> Plan:
    """Of the number of elements that are not 0."""
    identity = np.int64(0)
    kernels = _kernels("count_nonzero", elements.counted, elements.add, elements.total_of, identity)
    result = np.dtype(np.int64)
    return Plan(elements.counted, elements.add, kernels, identity, result, result, lambda: sum_plan("sum", result, None))


@functools.cache
def extreme_plan(name: str, dtype: DType) -> Plan:
    """Of the largest and the least element.

    Raises:
        TypeError: complex numbers have no order.
    """
    load, _, finish, combined = _order(name, dtype, least=name == "min")
    identity = combined(np.iinfo(combined).min)
    kernels = _kernels(name, load, elements.larger, finish, identity)
    return Plan(load, elements.larger, kernels, identity, dtype, dtype, lambda: extreme_plan(name, dtype))


@functools.cache
def variance_plan(name: str, dtype: DType) -> VariancePlan:
    """Of a variance or a standard deviation."""
    wide, load = (np.complex128, elements.double_complex) if dtype.kind == "c" else (np.float64, elements.double)
    finish = elements.variance_of if name == "var" else elements.root_of
    result = np.dtype(np.float64) if dtype.kind in "biu" else np.empty(0, dtype).real.dtype
    return VariancePlan(_variance(name, load, finish, wide), np.dtype(wide), result)


@functools.cache
def arg_extreme_plan(name: str, dtype: DType) -> ArgExtremePlan:
    """Of the place of the largest or the least element.

    Raises:
        TypeError: complex numbers have no order.
    """
    _, load, _, combined = _order(name, dtype, least=name == "argmin")
    return ArgExtremePlan(_arg_extreme(name, load, combined), np.dtype(combined))


def _order(name: str, dtype: DType, least: bool) -> tuple[Any, Any, Any, Any]:
    """What makes integers whose largest is the largest, or the least, element; and equal ones of equal elements.

    Then the way back, and the integers' type.
    """
    if dtype.kind == "c":
        raise TypeError(f"{name}: complex numbers have no order")
    if kind_of(dtype) == "f":
        width = 4 if dtype.itemsize <= 4 else 8
        prefix = "reversed_" if least else ""
        names = f"{prefix}key_{width}", f"{prefix}place_key_{width}", f"float_of_{prefix}{width}"
        load, place, finish = (getattr(elements, own) for own in names)
        return load, place, finish, np.int32 if width == 4 else np.int64
    combined = np.uint64 if dtype.kind == "u" else np.int64
    if not least:
        load = elements.unsigned if dtype.kind == "u" else elements.signed
        return load, load, elements.total_of, combined
    load = elements.inverted_unsigned if dtype.kind == "u" else elements.inverted_signed
    return load, load, elements.inverse_of, combined


# Dtypes that are combined alike share kernels.
_kernels = functools.cache(bodies.make_kernels)
_variance = functools.cache(make_variance)
_arg_extreme = functools.cache(make_arg_extreme)

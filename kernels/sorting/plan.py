"""Plans of sorting for each dtype: the functions that make keys, and the kernels that are made of these."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev.kernels.sorting import (
    cuda_radix as teams,
    keys as keys_of,
    network as short,
    radix as bodies,
    sample_sort as splits,
)

__all__ = ["Plan", "place_type", "plan_for", "split_kernels", "team_kernels"]

DType = np.dtype[Any]


class Plan(NamedTuple):
    """How to sort one dtype.

    Attributes:
        functions: from elements to keys, to keys of which those of equal elements are equal, and from keys to elements.
    """

    key: DType
    functions: tuple[Any, Any, Any]
    kernels: bodies.Kernels  #: that sort rows whole
    short: aiodev.Kernel  #: that sorts short rows


@functools.cache
def plan_for(dtype: DType, descending: bool) -> Plan:
    """The kernels that sort rows of a dtype."""
    size, kind = dtype.itemsize, dtype.kind
    key = np.dtype(f"u{size}")
    to_key: Any
    from_key: Any
    to_place_key = None
    if kind == "b":
        to_key, from_key = keys_of.truth_key, keys_of.truth_of
    elif kind == "u":
        to_key, from_key = keys_of.unsigned_key, keys_of.unsigned_key
    elif kind == "i":
        to_key, from_key = getattr(keys_of, f"signed_key_{size}"), getattr(keys_of, f"signed_of_{size}")
    else:
        to_key, from_key = getattr(keys_of, f"float_key_{size}"), getattr(keys_of, f"float_of_{size}")
        to_place_key = getattr(keys_of, f"equal_float_key_{size}")
    to_place_key = to_place_key or to_key
    if descending:
        to_key, to_place_key = keys_of.reversed_to(to_key, key.type), keys_of.reversed_to(to_place_key, key.type)
        from_key = keys_of.reversed_from(from_key, key.type)
    functions = to_key, to_place_key, from_key
    by_network = short.make_short("sort", to_key, from_key, key.type)
    return Plan(key, functions, bodies.make_kernels("sort", *functions, key.type), by_network)


@functools.cache
def split_kernels(dtype: DType, descending: bool) -> splits.SplitKernels:
    """The sample sort's kernels, which split long rows."""
    plan = plan_for(dtype, descending)
    return splits.make_split_kernels("sort", *plan.functions, plan.key.type)


@functools.cache
def team_kernels(dtype: DType, descending: bool) -> teams.TeamKernels:
    """The kernels that sort long rows by teams."""
    plan = plan_for(dtype, descending)
    return teams.make_team_kernels("sort", *plan.functions, plan.key.type)


def place_type(length: int) -> Any:
    """The type of places in a row."""
    return np.uint32 if length < 1 << 32 else np.int64

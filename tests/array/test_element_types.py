"""The table of dtypes: each row agrees with NumPy, DLPack, struct and numba; kinds and promotion follow from it."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aiodev
from aiodev import dtypes
from aiodev.dtypes import DTYPES, ElementType

B = np.dtype(ml_dtypes.bfloat16)
ROWS = list(DTYPES.values())
ALL = [aiodev.dtypes.parse_dtype(row.name) for row in ROWS]
#: DLPack's DLDataTypeCode.
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@every_row
def test_numpy_agrees(row: ElementType) -> None:
    """On the name, the size and, of its own dtypes, kind and code."""
    dtype = dtypes.parse_dtype(row.name)
    assert (dtype.name, dtype.itemsize) == (row.name, row.itemsize)
    assert dtypes.kind(dtype) == row.kind
    if row.package:
        assert type(dtype.type(0)).__module__ == row.package
    else:
        assert dtype.kind == row.kind and np.dtype(row.code) == dtype


@every_row
def test_dlpack_agrees(row: ElementType) -> None:
    """The code is that of the kind, but for other packages' dtypes, each of which has its own; bits are those of an element."""
    assert row.dlpack == ({"bfloat16": 4}[row.name] if row.package else CODES[row.kind], 8 * row.itemsize)


@every_row
def test_digits_agree(row: ElementType) -> None:
    """With what NumPy and ml_dtypes say of numbers' precision."""
    dtype = dtypes.parse_dtype(row.name)
    if row.kind in "fc":
        assert dtypes.digits(dtype) == ml_dtypes.finfo(np.empty(0, dtype).real.dtype).nmant + 1
    elif row.kind in "iu":
        assert 2 ** dtypes.digits(dtype) - 1 == np.iinfo(dtype).max


@every_row
def test_numbers_are_packed_as_numpy_has_them(row: ElementType) -> None:
    """In whole words, the number first; what struct cannot pack is passed as what it is computed in."""
    if not row.packing:
        assert row.is_stored_only
        return
    packed = struct.pack("<" + row.packing, *([1, 1] if row.kind == "c" else [1]))
    expected = np.array(1 + 1j if row.kind == "c" else 1, row.name).tobytes()
    assert len(packed) % 8 == 0 and packed.startswith(expected) and not any(packed[row.itemsize :])


@every_row
def test_numba_agrees(row: ElementType) -> None:
    """Its type has the name and the size of the row, in memory."""
    from numba.core.registry import cpu_target

    from aiodev._backends.compile import stored
    from aiodev._backends.cpu.compile import compiler

    assert compiler  # which tells numba of what it does not know
    found = stored.number_type(row.code)
    context = cpu_target.target_context
    assert str(found) == row.name
    assert context.get_abi_sizeof(context.get_data_type(found)) == row.itemsize


def test_backends_know_how_each_is_stored_that_numba_does_not_know() -> None:
    """Such a row has a format, which all compilers load and store by, and there is no other."""
    from aiodev._backends.compile.stored import FORMATS

    assert {name: form.data.width for name, form in FORMATS.items()} == {
        row.name: 8 * row.itemsize for row in ROWS if row.package
    }


@every_row
def test_arrays_have_it(row: ElementType) -> None:
    """An element makes the round trip, and the row's code is in what kernels are compiled for."""
    dtype = dtypes.parse_dtype(row.name)
    x = aiodev.ones(2, dtype, "cpu")
    assert x.dtype == dtype and x.numpy_blocking().tolist() == [1, 1]
    assert aiodev.from_dlpack(x).dtype == dtype


def test_what_is_computed_in_another_dtype() -> None:
    """What is stored only is smaller than what it is computed in, which is computed in itself."""
    stored = {row.name: row for row in ROWS if row.is_stored_only}
    assert {"bfloat16", "float16"} <= stored.keys() and all(row.itemsize < 4 and row.kind == "f" for row in stored.values())
    for dtype in ALL:
        computed = dtypes.compute_dtype(dtype)
        assert dtypes.compute_dtype(computed) == computed
        assert dtypes.can_cast(dtype, computed, "safe")
        assert dtypes.is_stored_only(dtype) is (computed != dtype)


def test_codes_names_and_dlpack_codes_are_different() -> None:
    """A row is found by each."""
    for attribute in ("name", "code", "dlpack"):
        assert len({getattr(row, attribute) for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("one, other", list(itertools.combinations_with_replacement(ALL, 2)), ids=str)
def test_promotion_is_that_of_numpy(one: Any, other: Any) -> None:
    """And of ml_dtypes, in either order."""
    expected = np.add.resolve_dtypes((one, other, None))[2]
    assert dtypes.result_type(one, other) == dtypes.result_type(other, one) == expected
    assert dtypes.resolve(np.add, other, one)[2] == expected


def test_weak_numbers() -> None:
    """A number of Python's takes the dtype of the array if that has its kind; so NumPy does with its own."""
    found = [dtypes.result_type(B, number) for number in (bool, int, float, complex)]
    assert found == [B, B, B, np.complex64]
    assert dtypes.result_type(np.dtype("i4"), float) == np.float64
    assert dtypes.resolve(np.multiply, B, float) == (B, B, B)


@pytest.mark.parametrize("one, other", list(itertools.product(ALL, repeat=2)), ids=str)
def test_casting_rules(one: Any, other: Any) -> None:
    """Other packages' dtypes are as float16, but that none of them is another without loss; the rest are as NumPy has it."""
    half, names = np.dtype("f2"), {row.name for row in ROWS if row.package}
    for rule in ("safe", "same_kind", "unsafe"):
        found = dtypes.can_cast(one, other, rule)
        if one != other and {one.name, other.name} <= {*names, "float16"}:
            assert found is (rule != "safe")
        elif rule == "safe" and other.name in names and dtypes.digits(one) > dtypes.digits(other):
            assert not found
        else:
            stand_ins = (half if dtype.name in names else dtype for dtype in (one, other))
            assert found == np.can_cast(*stand_ins, rule)


@pytest.mark.parametrize("dtype", ["U3", "datetime64[s]", object, "V2", np.longdouble, ml_dtypes.float8_e5m2])
def test_other_dtypes_are_refused(dtype: Any) -> None:
    """Those of ml_dtypes that are not in the table, too."""
    with pytest.raises(TypeError, match="device arrays hold"):
        aiodev.empty(2, dtype, "cpu")


def test_the_other_byte_order_is_converted() -> None:
    """Arrays have the machine's."""
    assert aiodev.asarray(np.ones(2, ">f4"), device="cpu").dtype == np.dtype("f4")

"""``matmul`` within a kernel: against NumPy, for blocks of any size anywhere, whose elements do not depend on the block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from selection import examples

import aiodev
from aiodev import lang

SIZES = st.one_of(st.integers(0, 9), st.sampled_from([15, 16, 17, 31, 33, 47, 63, 64, 65, 96, 100, 130]))


@aiodev.kernel
def multiply_block(i: int, top: int, bottom: int, left: int, right: int, x: Any, y: Any, out: Any) -> None:
    """Some rows and columns of a product."""
    lang.matmul(x[top:bottom], y[:, left:right], out[top:bottom, left:right])


@aiodev.kernel
def multiply_whole(i: int, x: Any, y: Any, out: Any) -> None:
    """A product, whole."""
    lang.matmul(x, y, out)


def product(x: np.ndarray, y: np.ndarray, block: tuple[int, int, int, int] | None = None) -> np.ndarray:
    """The product of ``x`` and ``y``, or a block of it beside sevens."""
    out = aiodev.full((x.shape[0], y.shape[1]), 7, x.dtype, "cpu")
    arrays = [aiodev.asarray(each, device="cpu") for each in (x, y)]
    if block is None:
        multiply_whole[1](*arrays, out)
    else:
        multiply_block[1](*block, *arrays, out)
    return out.numpy_blocking()


def normal(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    """Numbers of the size of 1."""
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@settings(max_examples=examples(40), deadline=None)
@given(rows=SIZES, inner=SIZES, columns=SIZES, seed=st.integers(0, 1000))
def test_matmul_of_floats(dtype: str, rows: int, inner: int, columns: int, seed: int) -> None:
    """It is NumPy's, and every element is as in a product of one row and one column."""
    rng = np.random.default_rng(seed)
    x, y = normal(rng, dtype, rows, inner), normal(rng, dtype, inner, columns)
    found = product(x, y)
    error = np.finfo(dtype).eps * (inner + 1) * (abs(x).astype("f8") @ abs(y).astype("f8"))
    assert (abs(found - x.astype("f8") @ y.astype("f8")) <= error).all()
    for _ in range(3):
        if rows and columns:
            i, j = rng.integers(rows), rng.integers(columns)
            assert product(x[i : i + 1], y[:, j : j + 1])[0, 0] == found[i, j]


@settings(max_examples=examples(40), deadline=None)
@given(rows=st.tuples(SIZES, SIZES, SIZES), columns=st.tuples(SIZES, SIZES, SIZES), inner=SIZES)
def test_matmul_writes_to_its_block_alone(rows: tuple[int, ...], columns: tuple[int, ...], inner: int) -> None:
    """A block has the bits that the whole product has there, and nothing is written beside it."""
    rng = np.random.default_rng(1)
    x, y = normal(rng, "f4", sum(rows), inner), normal(rng, "f4", inner, sum(columns))
    block = rows[0], rows[0] + rows[1], columns[0], columns[0] + columns[1]
    found, expected = product(x, y, block), np.full((sum(rows), sum(columns)), 7, np.float32)
    inside = slice(*block[:2]), slice(*block[2:])
    expected[inside] = product(x, y)[inside]
    assert (found == expected).all()


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "i8", "f2", "c8", "c16"])
def test_matmul_of_other_types(dtype: str) -> None:
    """Small numbers are multiplied exactly."""
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-3 if dtype[0] != "u" else 0, 4, shape).astype(dtype) for shape in ((5, 4), (4, 19)))
    assert (product(x, y) == (x.astype("c16") @ y.astype("c16"))).all()


@pytest.mark.parametrize("narrow", ["f2", "bfloat16"])
@settings(max_examples=examples(20), deadline=None)
@given(rows=SIZES, inner=SIZES, columns=SIZES, seed=st.integers(0, 1000))
def test_matmul_of_factors_of_16_bits(narrow: str, rows: int, inner: int, columns: int, seed: int) -> None:
    """To the bit the product of the same numbers in 32 bits, whichever factor it is, subnormal and infinite ones included."""
    rng = np.random.default_rng(seed)
    x, y = normal(rng, "f4", rows, inner), normal(rng, "f4", inner, columns)
    x[x > 1.5] *= np.float32(2.0**-20)
    y[y > 2.5] = np.inf
    given = [aiodev.asarray(each, device="cpu") for each in (x, y)]
    halves = [each.astype(narrow) for each in given]
    wide = [each.astype("f4") for each in halves]
    for a, b in ((0, 1), (1, 0), (1, 1)):
        found, expected = (aiodev.full((rows, columns), 7, "f4", "cpu") for _ in range(2))
        multiply_whole[1](halves[0] if a else given[0], halves[1] if b else given[1], found)
        multiply_whole[1](wide[0] if a else given[0], wide[1] if b else given[1], expected)
        np.testing.assert_array_equal(found.numpy_blocking(), expected.numpy_blocking())


@pytest.mark.parametrize("narrow", ["f2", "bfloat16"])
def test_matmul_of_columns_of_16_bits(narrow: str) -> None:
    """Element by element, where rows have gaps."""
    rng = np.random.default_rng(1)
    x, y = aiodev.asarray(normal(rng, "f4", 5, 20), device="cpu"), aiodev.asarray(normal(rng, "f4", 17, 20), device="cpu")
    half, out = y.astype(narrow), aiodev.empty((5, 17), "f4", "cpu")
    multiply_whole[1](x, half.T, out)
    expected = x.numpy_blocking() @ half.astype("f4").numpy_blocking().T
    np.testing.assert_allclose(out.numpy_blocking(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("turned", ["x", "y", "out"])
def test_matmul_of_transposed(turned: str) -> None:
    """Columns may lie together in place of rows."""
    rng = np.random.default_rng(1)
    arrays = {name: normal(rng, "f4", 20, 20) for name in ("x", "y", "out")}
    device = {name: aiodev.asarray(a, device="cpu") for name, a in arrays.items()}
    shown = {name: a.T if name == turned else a for name, a in (arrays | device).items()}
    multiply_whole[1](*shown.values()).synchronize_blocking()
    x, y = (arrays[name].T if name == turned else arrays[name] for name in ("x", "y"))
    np.testing.assert_allclose(shown["out"].numpy_blocking(), x @ y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shapes", [((2, 3), (4, 5), (2, 5)), ((2, 3), (3, 5), (3, 5)), ((2, 3), (3, 5), (2, 4))])
def test_shapes_that_do_not_fit_fail(shapes: tuple[tuple[int, int], ...]) -> None:
    """Whoever waits is told, and nothing is written."""
    x, y, out = (aiodev.zeros(shape, device="cpu") for shape in shapes)
    with pytest.raises(aiodev.KernelError, match="the shapes do not fit") as caught:
        multiply_whole[1](x, y, out).synchronize_blocking()
    assert isinstance(caught.value.__cause__, ValueError)


def test_what_is_no_matrix_is_refused() -> None:
    """By the compiler, by name."""
    x, y, z = (aiodev.zeros((2, 2), dtype, "cpu") for dtype in ("f8", "f4", "f2"))
    whole, one = "argument a: expected a two-dim", "expected arrays of one dtype"
    for arguments, message in (((x[0], x, x), whole), ((x, y, x), one), ((x, z, x), one), ((y, y, z), one), ((x, z, y), one)):
        with pytest.raises(aiodev.CompileError, match=message):
            multiply_whole[1](*arguments).synchronize_blocking()


def test_a_plain_call_is_numpys() -> None:
    """Outside of kernels it is what its body says."""
    x, out = np.arange(4.0).reshape(2, 2), np.zeros((2, 2))
    lang.matmul(x, x, out)
    assert (out == x @ x).all()
    with pytest.raises(ValueError, match="do not fit"):
        lang.matmul(x, x[:1], out)

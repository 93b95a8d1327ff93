"""Arrays and scalars of every dtype, shape and stride, next to NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from kernel_entry import needs_compiler, spec_of
from selection import examples

import aiodev
from aiodev import CompileError, LaunchError
from aiodev._backends.cpu.compile import compiler

INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
FLOATS = ["f2", "f4", "f8"]
NUMBERS = ["b1", *INTEGERS, *FLOATS, "c8", "c16"]


@aiodev.kernel
def copy1(i: int, x: Any, out: Any) -> None:
    out[i] = x[i]


@aiodev.kernel(ndim=2)
def copy2(i: int, j: int, x: Any, out: Any) -> None:
    out[i, j] = x[i, j]


@aiodev.kernel(ndim=3)
def copy3(i: int, j: int, k: int, x: Any, out: Any) -> None:
    out[i, j, k] = x[i, j, k]


@aiodev.kernel
def scaled(i: int, a: Any, x: Any, out: Any) -> None:
    out[i] = a * x[i]


@aiodev.kernel
def polynomial(i: int, x: Any, out: Any) -> None:
    out[i] = (x[i] * 0.5 + 1.25) * x[i] - 3


@aiodev.kernel
def spread(i: int, x: Any, out: Any) -> None:
    out[i] = x[()]


COPIES: dict[int, aiodev.Kernel] = {1: copy1, 2: copy2, 3: copy3}


def same(found: Any, expected: Any) -> bool:
    """Bit for bit, but for NaNs, of which any will do."""
    return bool(found.dtype == expected.dtype and np.array_equal(found, expected, equal_nan=found.dtype.kind in "fc"))


@settings(max_examples=examples(80), deadline=None)
@given(st.sampled_from(NUMBERS), st.data())
def test_elements_of_every_dtype(dtype: str, data: st.DataObject) -> None:
    """What is read is what is written, to the last bit, specials too."""
    host = data.draw(hnp.arrays(dtype, st.integers(0, 12)))
    out = aiodev.zeros(host.shape, dtype=dtype)
    copy1[host.size](aiodev.asarray(host), out)
    assert same(out.numpy_blocking(), host)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_scalars_of_every_dtype(dtype: str) -> None:
    """A NumPy scalar keeps its dtype, a Python number takes that of the array."""
    host = np.arange(1, 5).astype(dtype)
    x = aiodev.asarray(host)
    for scalar in (np.dtype(dtype).type(1), {"b": True, "i": 1, "u": 1, "f": 1.0, "c": 1j}[host.dtype.kind]):
        out = aiodev.zeros(4, dtype=dtype)
        scaled[4](scalar, x, out)
        assert same(out.numpy_blocking(), (scalar * host).astype(dtype))


def test_a_weak_int_keeps_large_unsigned_numbers_whole() -> None:
    """numba alone would compute with an int64 and a uint64 in float64."""
    host = np.array([2**63 + 1, 5], "u8")
    out = aiodev.zeros(2, dtype="u8")
    scaled[2](1, aiodev.asarray(host), out)
    assert same(out.numpy_blocking(), host)
    with pytest.raises(LaunchError, match="argument a: expected a number that fits u8, got -1"):
        scaled[2](-1, aiodev.asarray(host), out)


_steps = st.sampled_from([-3, -2, -1, 1, 2, 3])


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(["f8", "f2"]), st.integers(1, 3), st.data())
def test_any_view_of_any_shape(dtype: str, ndim: int, data: st.DataObject) -> None:
    """Slices with steps, negative ones too, and permuted axes, read and written; what lies between is left alone."""
    shape = data.draw(st.lists(st.integers(0, 5), min_size=ndim, max_size=ndim))
    axes = data.draw(st.permutations(range(ndim)))

    def view_of(host: Any) -> tuple[Any, Callable[[Any], Any]]:
        steps = tuple(slice(None, None, data.draw(_steps)) for _ in range(ndim))
        array = aiodev.asarray(host)
        return array[steps].transpose(*axes), lambda whole: whole[steps].transpose(*axes)

    source = np.arange(np.prod([3 * n for n in shape])).reshape([3 * n for n in shape]).astype(dtype)
    x, in_source = view_of(source)
    values = in_source(source)
    whole = aiodev.asarray(np.full([3 * n for n in shape], -1, dtype))
    target_steps = tuple(slice(None, None, data.draw(_steps)) for _ in range(ndim))
    target = whole[target_steps].transpose(*axes)
    length = tuple(min(a, b) for a, b in zip(values.shape, target.shape, strict=True))
    COPIES[ndim][length](x, target)
    expected = np.full([3 * n for n in shape], -1, dtype)
    corner = tuple(slice(0, n) for n in length)
    expected[target_steps].transpose(*axes)[corner] = values[corner]
    assert same(whole.numpy_blocking(), expected)


@pytest.mark.parametrize("dtype", ["f2", "i4", "c16"])
def test_arrays_of_no_dimension(dtype: str) -> None:
    """Their element is ``x[()]``."""
    out = aiodev.zeros(3, dtype=dtype)
    spread[3](aiodev.asarray(np.array(7, dtype)), out)
    assert out.numpy_blocking().tolist() == [7, 7, 7]


@needs_compiler
@settings(max_examples=examples(100), deadline=None)
@given(hnp.arrays("f2", st.integers(1, 20)))
def test_float16_is_computed_with_in_float32(host: Any) -> None:
    """Each element is widened, and the result rounded once, when it is stored."""
    out = aiodev.zeros(host.shape, dtype="f2")
    polynomial[host.size](aiodev.asarray(host), out)
    with np.errstate(all="ignore"):
        wide = host.astype("f4")
        expected = ((wide * np.float64(0.5) + 1.25) * wide - 3).astype("f4").astype("f2")
    assert same(out.numpy_blocking(), expected)


@needs_compiler
def test_float16_is_vectorised() -> None:
    """Elements are widened and rounded several at a time."""
    x = np.zeros(8, "f2")
    text = compiler.compile_result(spec_of(scaled.py_func, 1, (np.float32(2), x, x))).library.get_llvm_str()
    assert re.search(r"fpext <\d+ x half>", text) and re.search(r"fptrunc <\d+ x float>", text)


def test_float16_of_what_does_not_fit() -> None:
    """It is infinite."""
    out = aiodev.zeros(2, dtype="f2")
    copy1[2](aiodev.asarray(np.array([1e6, -7e4])), out)
    assert out.numpy_blocking().tolist() == [np.inf, -np.inf]


@needs_compiler
def test_float16_refuses_complex_numbers() -> None:
    """The message names the types."""
    with pytest.raises(CompileError, match=r"float16, 1d, C\), int64, complex64"):
        copy1[2](aiodev.zeros(2, dtype="c8"), aiodev.zeros(2, dtype="f2")).synchronize_blocking(60)


@pytest.mark.parametrize("dtype", ["f2", "f8", "b1"])
def test_readonly_outputs_are_refused(dtype: str) -> None:
    """Read-only inputs are not."""
    host = np.ones(4, dtype)
    host.flags.writeable = False
    x = aiodev.from_dlpack(host)
    out = aiodev.zeros(4, dtype=dtype)
    copy1[4](x, out)
    assert same(out.numpy_blocking(), host)
    with pytest.raises(LaunchError, match="argument out: expected an array that can be written to"):
        copy1[4](out, x)

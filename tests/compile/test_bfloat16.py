"""bfloat16 in kernels on the CPU: every number that there is, what rounds to one, and what a body may do with an element."""

from __future__ import annotations

import math
import os
import platform
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp
from kernel_entry import needs_compiler, spec_of
from programs import search_path
from selection import some

import aiodev
from aiodev import CompileError, lang

B = np.dtype(ml_dtypes.bfloat16)
EVERY = np.arange(2**16, dtype=np.uint16).view(B)


@aiodev.kernel
def convert(i: int, x: Any, out: Any) -> None:
    """Whatever the types."""
    out[i] = x[i]


@aiodev.kernel
def scaled(i: int, a: Any, x: Any, out: Any) -> None:
    """Arithmetic, with a number."""
    out[i] = a * x[i] + x[i]


@aiodev.kernel
def polynomial(i: int, x: Any, out: Any) -> None:
    out[i] = (x[i] * 0.5 + 1.25) * x[i] - 3


@aiodev.kernel
def rounded(i: int, x: Any, out: Any) -> None:
    out[i] = lang.bfloat16(x[i])


@aiodev.kernel
def chosen(i: int, x: Any, y: Any, out: Any) -> None:
    """All that numba asks of a number: its truth, comparisons, a variable of several types, functions of all origins."""
    v, w = x[i], y[i]
    best = v if v > w else -w
    if v:
        best += np.floor(w)
    low, high = min(v, w), max(v, w)
    kept = v
    for k in range(2):
        kept = kept + x[k]
    total = best + low * high + abs(v) + math.sqrt(abs(w)) + np.maximum(v, w) + float(v)
    out[i] = total + np.float32(int(w)) + lang.exp(v) + kept + (v.real - v) + w.imag


@aiodev.kernel
def added(i: int, x: Any, out: Any) -> None:
    lang.atomic_add(out, i % 2, x[i])


@aiodev.kernel
def limits(i: int, x: Any, out: Any) -> None:
    lang.atomic_min(out, 0, x[i])
    lang.atomic_max(out, 1, x[i])


@aiodev.kernel
def totals(i: int, x: Any, out: Any) -> None:
    mean, variance = lang.moments(x[i])
    out[i, 0], out[i, 1], out[i, 2], out[i, 3] = lang.sum(x[i]), lang.sum_squares(x[i]), mean, variance


@aiodev.kernel
def swapped(i: int, x: Any) -> None:
    lang.atomic_cas(x, i, 0, 1)


def converted(host: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    """By a kernel."""
    out = aiodev.empty(host.size, dtype, "cpu")
    convert[host.size](aiodev.asarray(host, device="cpu"), out)
    return out.numpy_blocking()


def assert_same(found: Any, expected: Any) -> None:
    """To the bit, but for NaN, of which any will do."""
    missing = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), missing)
    np.testing.assert_array_equal(found.view(np.uint16)[~missing], expected.view(np.uint16)[~missing])


def singles() -> np.ndarray[Any, Any]:
    """float32 numbers next to every bfloat16 and half-way between neighbours, and of any bits; NaN of all kinds."""
    upper = np.arange(2**16, dtype=np.uint32) << 16
    near = [upper, upper + 1, upper + 0x7FFF, upper + 0x8000, upper + 0x8001, upper + 0xFFFF]
    return np.concatenate([*near, np.random.default_rng(1).integers(0, 2**32, 200_000, np.uint32)]).view(np.float32)


def near_halves() -> np.ndarray[Any, Any]:
    """float64 numbers that would come out otherwise if they were rounded to float32 first."""
    return singles().astype(np.float64) * (1 + 2.0**-40)


#: What is rounded, by its type and kind; the first stands for the others by default.
ROUNDED: dict[str, Callable[[], np.ndarray[Any, Any]]] = {
    "f4": singles,
    "f8": near_halves,
    "f8 of any bits": lambda: np.random.default_rng(2).integers(0, 2**64, 50_000, np.uint64).view(np.float64),
    "f2": lambda: np.arange(2**16, dtype=np.uint16).view(np.float16),
    "i8": lambda: np.arange(-70_000, 70_000),
    "u1": lambda: np.arange(-70_000, 70_000).astype(np.uint8),
    "?": lambda: np.arange(-70_000, 70_000) > 0,
}
WIDENED = ["f4", "f8", "f2", "c8", "i8"]


def check_rounding(name: str) -> None:
    """Conversions to bfloat16, against ml_dtypes'."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        host = ROUNDED[name]()
        assert_same(converted(host, B), host.astype(B))


def check_widening(dtype: str) -> None:
    """Conversions from bfloat16, against ml_dtypes'."""
    every = EVERY if dtype != "i8" else EVERY[np.abs(EVERY.astype("f4")) < 2**62]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(converted(every, dtype), every.astype(dtype))


@pytest.mark.parametrize("name", some(list(ROUNDED), 2))
def test_rounding(name: str) -> None:
    """As ml_dtypes', to the bit, from all kinds of numbers."""
    check_rounding(name)


@pytest.mark.parametrize("dtype", WIDENED)
def test_widening(dtype: str) -> None:
    """As ml_dtypes', to all kinds of numbers."""
    check_widening(dtype)


def test_what_is_moved_keeps_its_bits() -> None:
    """NaN too."""
    np.testing.assert_array_equal(converted(EVERY, B).view(np.uint16), EVERY.view(np.uint16))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names a processor of x86-64")
def test_conversions_without_instructions_for_them() -> None:
    """On processors that have neither AVX nor F16C."""
    code = (
        "import importlib.util as u, sys\n"
        "s = u.spec_from_file_location('m', sys.argv[1]); m = u.module_from_spec(s); s.loader.exec_module(m)\n"
        "for name in sys.argv[2].split(','): m.check_rounding(name)\n"
        "for name in sys.argv[3].split(','): m.check_widening(name)"
    )
    # The executor would be compiled for it, too.
    environment = {**os.environ, "AIODEV_EXECUTOR": "python", "NUMBA_CPU_NAME": "nehalem", "NUMBA_CPU_FEATURES": ""}
    environment["PYTHONPATH"] = search_path()
    names = [",".join(some(list(names))) for names in (ROUNDED, WIDENED)]
    command = [sys.executable, "-c", code, __file__, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@needs_compiler
@settings(max_examples=100, deadline=None)
@given(hnp.arrays("u2", 20).map(lambda bits: bits.view(B)))
def test_arithmetic_is_that_of_float32(host: Any) -> None:
    """Each element is widened, and the result rounded once, when it is stored; Python's numbers are float32."""
    x, wide = aiodev.asarray(host, device="cpu"), host.astype("f4")
    out = aiodev.empty(host.size, B, "cpu")
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaled[host.size](0.1, x, out)
        assert_same(out.numpy_blocking(), (np.float32(0.1) * wide + wide).astype(B))
        polynomial[host.size](x, out)
        assert_same(out.numpy_blocking(), ((wide * np.float64(0.5) + 1.25) * wide - 3).astype("f4").astype(B))


def test_a_number_of_the_dtype_is_what_it_is() -> None:
    """It is passed as float32."""
    x, out = aiodev.ones(3, B, "cpu"), aiodev.empty(3, "f4", "cpu")
    for _ in range(2):
        scaled[3](B.type(0.1), x, out)
        assert out.numpy_blocking().tolist() == [float(B.type(0.1)) + 1] * 3


@needs_compiler
def test_loops_are_vectorised() -> None:
    """Elements are widened and rounded several at a time: shifts of vectors, and no calls."""
    x = np.zeros(8, B)
    text = compiled_text(scaled, (np.float32(2), x, x))
    assert re.search(r"shl [nuws ]*<\d+ x i32>", text) and re.search(r"trunc [nuws ]*<\d+ x i32> .* to <\d+ x i16>", text)


@needs_compiler
def test_moves_are_not_rounded() -> None:
    """A copy has no arithmetic: numbers are what they were."""
    x = np.zeros(8, B)
    text = compiled_text(convert, (x, x))
    assert "32767" not in text and "fcmp" not in text


def compiled_text(kernel: aiodev.Kernel, arguments: Any) -> str:
    from aiodev._backends.cpu.compile import compiler

    text: str = compiler.compile_result(spec_of(kernel.py_func, 1, arguments)).library.get_llvm_str()
    return text


@needs_compiler
def test_what_bodies_do_with_elements() -> None:
    """Elements are numbers like others: they have a truth, are compared, and go to variables and functions as float32."""
    x, y = (np.random.default_rng(n).standard_normal(100).astype(B) for n in (1, 2))
    x[::7] = 0
    v, w = x.astype("f4"), y.astype("f4")
    best = np.where(v > w, v, -w) + np.where(v != 0, np.floor(w), 0)
    expected = best + np.minimum(v, w) * np.maximum(v, w) + abs(v) + np.sqrt(abs(w)) + np.maximum(v, w) + v + np.trunc(w)
    expected = expected + np.exp(v) + (v + v[0] + v[1])
    out = aiodev.empty(100, "f4", "cpu")
    chosen[100](aiodev.asarray(x, device="cpu"), aiodev.asarray(y, device="cpu"), out)
    np.testing.assert_allclose(out.numpy_blocking(), expected, rtol=1e-5, atol=1e-5)


def test_rounding_on_the_way() -> None:
    """``lang.bfloat16`` rounds as a store does, and so does the Python function that it stands for."""
    out = aiodev.empty(singles().size, "f4", "cpu")
    rounded[singles().size](aiodev.asarray(singles(), device="cpu"), out)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out.numpy_blocking(), singles().astype(B).astype("f4"))
    for number in (0.1, 3, True, -1e-40, 3.4e38, math.inf, -math.inf, np.float16(0.1), 1 + 2**-8):
        assert lang.bfloat16(number) == np.float32(np.array(number).astype("f4").astype(B))
    assert math.isnan(lang.bfloat16(math.nan))


def test_atomics() -> None:
    """Sums lose no update, whatever threads there are; the least and the largest, too."""
    x = aiodev.asarray(np.ones(200, B), device="cpu")
    out = aiodev.zeros(2, B, "cpu")
    added[200](x, out)
    assert out.numpy_blocking().tolist() == [100, 100]
    host = np.random.default_rng(0).standard_normal(5000).astype(B)
    limits[5000](aiodev.asarray(host, device="cpu"), out)
    assert out.numpy_blocking().tolist() == [host.astype("f4").min(), 100]


@needs_compiler
def test_atomic_comparison_is_refused() -> None:
    """The message names the type."""
    with pytest.raises(CompileError, match="atomic_cas: elements of bfloat16 cannot be updated atomically"):
        swapped[2](aiodev.zeros(2, B, "cpu")).synchronize_blocking(60)


def test_sums() -> None:
    """``lang``'s are in float64."""
    host = np.random.default_rng(0).standard_normal((3, 1000)).astype(B)
    out, wide = aiodev.empty((3, 4), device="cpu"), host.astype("f8")
    totals[3](aiodev.asarray(host, device="cpu"), out)
    expected = np.stack([wide.sum(1), (wide * wide).sum(1), wide.mean(1), wide.var(1)], 1)
    np.testing.assert_allclose(out.numpy_blocking(), expected, rtol=1e-12, atol=1e-12)


@needs_compiler
def test_complex_numbers_are_refused() -> None:
    """The message names the types."""
    with pytest.raises(CompileError, match=r"bfloat16, 1d, C\), int64, complex64"):
        convert[2](aiodev.zeros(2, "c8", "cpu"), aiodev.zeros(2, B, "cpu")).synchronize_blocking(60)


@pytest.mark.parametrize("steps", [(slice(None, None, 2), slice(None)), (slice(None, None, -1), slice(1, None, 3))])
def test_views(steps: Any) -> None:
    """With gaps, read and written."""
    host = np.random.default_rng(0).standard_normal((20, 30)).astype(B)
    x = aiodev.asarray(host, device="cpu")[steps]
    target = aiodev.zeros((30, 20), B, "cpu").T[steps]
    double = aiodev.kernel(ndim=2)(_double)
    double[x.shape](x, target)
    np.testing.assert_array_equal(target.numpy_blocking(), (2 * host[steps].astype("f4")).astype(B))


def _double(i: int, j: int, x: Any, out: Any) -> None:
    out[i, j] = x[i, j] + x[i, j]

"""float16 in kernels on the CPU: every number that there is, and what rounds to one."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from programs import search_path
from selection import some

import aiodev

EVERY = np.arange(2**16, dtype=np.uint16).view(np.float16)


@aiodev.kernel
def convert(i, x, out):
    """Whatever the types."""
    out[i] = x[i]


@aiodev.kernel
def double(i, a, x, out):
    """Arithmetic, with a number."""
    out[i] = a * x[i] + x[i]


def converted(host: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """By a kernel."""
    out = aiodev.empty(host.size, dtype, "cpu")
    convert[host.size](aiodev.asarray(host, device="cpu"), out)
    return out.numpy_blocking()


def singles() -> np.ndarray[Any, Any]:
    """float32 numbers next to every float16 and half-way between neighbours, and of any bits."""
    finite = np.sort(EVERY[np.isfinite(EVERY)].astype(np.float32))
    between = (finite[1:] + finite[:-1]) / 2
    near = [finite, between, np.nextafter(between, np.float32(np.inf)), np.nextafter(between, np.float32(-np.inf))]
    edges = np.array([65504, 65519.996, 65520, 65536, 1e30, np.inf, -np.inf, np.nan, 2.0**-25, 1e-40], np.float32)
    bits = np.random.default_rng(1).integers(0, 2**32, 200_000, np.uint32).view(np.float32)
    return np.concatenate([*near, edges, -edges, bits])


def doubles() -> np.ndarray[Any, Any]:
    """float64 numbers that would come out otherwise if they were rounded to float32 first."""
    finite = np.sort(EVERY[np.isfinite(EVERY)].astype(np.float64))
    between = (finite[1:] + finite[:-1]) / 2
    tiny = np.abs(between) * 2.0**-40 + 1e-300
    bits = np.random.default_rng(2).integers(0, 2**64, 50_000, np.uint64).view(np.float64)
    return np.concatenate([between, between + tiny, between - tiny, [1e300, -np.inf, np.nan, 65519.99999999], bits])


#: What is rounded, by its type; the first stands for the others by default where little is to be compiled.
ROUNDED = {"f4": singles, "f8": doubles, "i8": lambda: np.arange(-70_000, 70_000)}
WIDENED = ["f4", "f8", "i8"]


def check_rounding(name: str) -> None:
    """Conversions to float16, against NumPy's."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        host = ROUNDED[name]()
        found, expected = converted(host, "f2"), host.astype(np.float16)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), ~known)
    np.testing.assert_array_equal(found.view(np.uint16)[known], expected.view(np.uint16)[known])


def check_widening(dtype: str) -> None:
    """Conversions from float16, against NumPy's."""
    every = EVERY if dtype != "i8" else EVERY[np.abs(EVERY) < 30_000]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        np.testing.assert_array_equal(converted(every, dtype), every.astype(dtype))


@pytest.mark.parametrize("name", ROUNDED)
def test_rounding(name: str) -> None:
    """As NumPy's, to the bit, from float32, float64 and integers; NaN stays NaN."""
    check_rounding(name)


@pytest.mark.parametrize("dtype", WIDENED)
def test_widening(dtype: str) -> None:
    """As NumPy's, to float32, float64 and integers."""
    check_widening(dtype)


def test_what_is_moved_keeps_its_bits() -> None:
    """NaN too."""
    np.testing.assert_array_equal(converted(EVERY, "f2").view(np.uint16), EVERY.view(np.uint16))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names a processor of x86-64")
def test_conversions_without_instructions_for_them() -> None:
    """On processors that have none."""
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


def test_arithmetic_is_that_of_float32() -> None:
    """And is rounded when it is stored; a number beside float16 is a float32."""
    x = np.linspace(-3, 3, 1001).astype(np.float16)
    out = aiodev.empty(x.size, "f2", "cpu")
    double[x.size](0.1, aiodev.asarray(x, device="cpu"), out)
    wide = x.astype(np.float32)
    np.testing.assert_array_equal(out.numpy_blocking(), (np.float32(0.1) * wide + wide).astype(np.float16))

"""What a body may call: the compiled form does what the plain function says, and atomics are atomic."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from kernel_entry import Entry, needs_compiler, run

from aiodev import lang
from aiodev._core.errors import CompileError

DTYPES = ["i1", "u1", "i4", "u4", "i8", "u8", "f4", "f8"]


def add_all(i: int, x: Any, total: Any, old: Any) -> None:
    old[i] = lang.atomic_add(total, 0, x[i])


def bounds(i: int, x: Any, low: Any, high: Any) -> None:
    lang.atomic_min(low, 0, x[i])
    lang.atomic_max(high, (0,), x[i])


def swap(i: int, x: Any, expected: Any, value: Any, old: Any) -> None:
    old[i] = lang.atomic_cas(x, i, expected, value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_and_what_was_there(dtype: str) -> None:
    """atomic_add adds, and returns what was there before."""
    x, total, old = np.arange(1, 6).astype(dtype), np.zeros(1, dtype), np.zeros(5, dtype)
    run(add_all, 5, x, total, old)
    assert total[0] == 15
    assert old.tolist() == [0, 1, 3, 6, 10]


@pytest.mark.parametrize("dtype", DTYPES)
def test_min_and_max(dtype: str) -> None:
    """atomic_min and atomic_max compare as the dtype does, signed or not."""
    x = np.array([3, 100, 7], dtype) if dtype[0] == "u" else np.array([3, -100, 7], dtype)
    low, high = x[:1].copy(), x[:1].copy()
    run(bounds, 3, x, low, high)
    assert (low[0], high[0]) == (x.min(), x.max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_compare_and_swap(dtype: str) -> None:
    """atomic_cas writes only where the expected value is."""
    x, old = np.array([1, 2, 1], dtype), np.zeros(3, dtype)
    run(swap, 3, x, x.dtype.type(1), x.dtype.type(9), old)
    assert x.tolist() == [9, 2, 9]
    assert old.tolist() == [1, 2, 1]


@pytest.mark.parametrize("dtype", ["i4", "i8", "f4", "f8"])
def test_no_update_is_lost_between_threads(dtype: str) -> None:
    """Threads that add to one element at once lose nothing."""
    count = 200_000
    x, total, old = np.ones(count, dtype), np.zeros(1, dtype), np.zeros(count, dtype)
    entry = Entry(add_all, count, x, total, old)
    barrier = threading.Barrier(2)

    def add() -> None:
        barrier.wait()
        entry(x, total, old)

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total[0] == 2 * count


def test_two_dimensions() -> None:
    """An index may be a tuple."""

    def count(i: int, x: Any, bins: Any) -> None:
        lang.atomic_add(bins, (x[i] % 2, x[i] % 3), 1)

    x, bins = np.arange(12), np.zeros((2, 3), "i8")
    run(count, 12, x, bins)
    assert (bins == 2).all()


@needs_compiler
def test_refusals_say_why() -> None:
    """A read-only array, and elements that no processor updates atomically, do not compile."""
    readonly = np.zeros(1)
    readonly.flags.writeable = False
    with pytest.raises(CompileError, match="read-only"):
        run(add_all, 1, np.zeros(1), readonly, np.zeros(1))
    with pytest.raises(CompileError, match="complex128 cannot be updated atomically"):
        run(add_all, 1, np.zeros(1, "c16"), np.zeros(1, "c16"), np.zeros(1, "c16"))


@needs_compiler
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_fma_rounds_once(dtype: str) -> None:
    """fma keeps what a product alone would round away."""

    def apply(i: int, a: Any, b: Any, c: Any, out: Any) -> None:
        out[i] = lang.fma(a[i], b[i], c[i])

    epsilon = np.finfo(dtype).eps
    a = np.array([1 + epsilon], dtype)
    out = np.zeros(1, dtype)
    run(apply, 1, a, a, -np.ones(1, dtype), out)
    exact = 2 * float(epsilon) + float(epsilon) ** 2
    assert float(out[0]) == float(np.dtype(dtype).type(exact))


def test_rsqrt_and_popcount() -> None:
    """The compiled forms agree with the plain functions."""

    def apply(i: int, x: Any, n: Any, root: Any, bits: Any) -> None:
        root[i] = lang.rsqrt(x[i])
        bits[i] = lang.popcount(n[i])

    x, n = np.array([4.0, 16.0]), np.array([0b1011, -1], "i4")
    root, bits = np.zeros(2), np.zeros(2, "i8")
    run(apply, 2, x, n, root, bits)
    assert root.tolist() == [lang.rsqrt(4.0), lang.rsqrt(16.0)]
    assert bits.tolist() == [lang.popcount(0b1011), lang.popcount(np.int32(-1))]


def test_prefetching_changes_nothing_and_may_ask_for_what_is_not_there() -> None:
    """Slices are cut off at an array's end, a place may be beyond it; strides are kept; several dimensions are refused."""

    def apply(i: int, x: Any, few: Any, out: Any) -> None:
        lang.prefetch(x[i * 100 : i * 100 + 300])
        lang.prefetch(x[100 * x.size :])
        lang.prefetch(few[:, 1])
        lang.prefetch(x, i + 1000)
        out[i] = x[i]

    x, few, out = np.arange(200, dtype="f4"), np.zeros((7, 3), "u1"), np.zeros(200, "f4")
    run(apply, 200, x, few, out)
    assert out.tolist() == x.tolist()
    apply(0, x, few, out)

    def refused(i: int, x: Any) -> None:
        lang.prefetch(x)

    with pytest.raises(CompileError, match="prefetch: expected a one-dimensional array"):
        run(refused, 1, few)

    def refused_place(i: int, x: Any) -> None:
        lang.prefetch(x, 1.5)

    with pytest.raises(CompileError, match="prefetch: expected an integer for the place"):
        run(refused_place, 1, x)


def test_import_needs_no_compiler() -> None:
    """aiodev and aiodev.lang import without numba."""
    code = "import sys, aiodev, aiodev.lang, aiodev._kernel.kernel; assert not {'numba', 'llvmlite'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_native_functions_are_called_by_address() -> None:
    """Integers, floats of both sizes and arrays arrive as a C function takes them."""
    seen: list[tuple[Any, ...]] = []
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_float, ctypes.c_double, ctypes.c_void_p)
    note = prototype(lambda *args: seen.append(args))
    address = ctypes.cast(note, ctypes.c_void_p).value or 0
    x = np.zeros(4)
    run(call_it, 1, np.uint64(address), np.int32(-3), np.float32(1.5), np.float64(2.5), x)
    call_it(0, address, np.int32(-3), np.float32(1.5), np.float64(2.5), x)
    assert seen == [(-3, 1.5, 2.5, x.ctypes.data + 8)] * 2


def call_it(i: int, address: Any, n: Any, a: Any, b: Any, x: Any) -> None:
    lang.call_native(address, n, a, b, x[1:])

"""Compiled kernels in a process that does not compile: what loads them, and what that imports."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from kernel_entry import Entry, needs_compiler, run, spec_of

import aiodev
from aiodev._backends.cpu.compile import kernel_code, kernel_object
from aiodev._native.machine import llvm, make_machine

PROGRAM = """
import sys
import aiodev
from aiodev import profiler
import aiodev.kernels as k

@aiodev.kernel
def halved(i, x):
    if x[i] < 0:
        raise ValueError("negative")
    x[i] = x[i] / 2

@aiodev.kernel
def told(i, x):
    if x[i] < 0:
        raise ValueError("negative", x[i])

def outcome(launch):
    try:
        launch.synchronize_blocking(60)
    except aiodev.KernelError as error:
        return repr(error.__cause__)

x = aiodev.full(1, 3.0, device="cpu")
halved[1](x)
print(x.numpy_blocking()[0], outcome(halved[1](aiodev.full(1, -1.0, device="cpu"))))
print(k.sort(k.add(x, x)).numpy_blocking()[0], "numba" in sys.modules)
print(outcome(told[1](aiodev.full(1, -1.5, device="cpu"))), "numba" in sys.modules)
print(profiler.counters()["kernels_compiled"], profiler.counters()["kernels_loaded"])
"""


@needs_compiler
def test_a_program_imports_no_numba(cache_without_kernels: Path, tmp_path: Path) -> None:
    """Neither one that compiles, which workers do, nor one that finds its kernels; only for what makes Python objects."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {"PYTHONPATH": str(Path(aiodev.__file__).parents[1]), "AIODEV_CACHE_DIR": str(cache_without_kernels)}
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        *lines, counts = done.stdout.splitlines()
        assert lines == ["1.5 ValueError('negative')", "3.0 False", "ValueError('negative', -1.5) True"]
        found.append(tuple(map(int, counts.split())))
    assert found[0][0] == found[1][1] and found[0][1] == found[1][0] == 0


def fill(i: int, value: float, out: Any) -> None:
    out[i] = value


def logs(i: int, out: Any) -> None:
    out[i] = np.log(out[i]) + np.array([1.0, out[i]])[i % 2]


def raises(i: int, x: Any) -> None:
    if x[i] > 1:
        raise ValueError("bad", x[i])


def compiled(body: Any, *values: Any) -> kernel_object.KernelObject:
    compiler = pytest.importorskip("aiodev._backends.cpu.compile.compiler")
    entry: kernel_object.KernelObject = compiler.compile_object(spec_of(body, 1, values))[0]
    return entry


@needs_compiler
@pytest.mark.parametrize(
    ("body", "values", "needs"),
    [
        (fill, (np.float64(1), np.ones(4)), False),
        (logs, (np.ones(4),), True),  # it allocates
        (raises, (np.ones(4),), True),  # it makes an exception's arguments
    ],
)
def test_what_needs_numba_is_known(body: Any, values: tuple[Any, ...], needs: bool) -> None:
    """By the symbols that the code takes from outside."""
    assert compiled(body, *values).needs_numba is needs


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="object files have another format here")
def test_what_code_takes_from_outside() -> None:
    """The functions of C's libraries, and numba's allocator; not what the file itself defines."""
    found = kernel_object.outside(compiled(logs, np.ones(4)).code)
    assert found is not None and any(name.startswith("NRT_") for name in found)
    assert not any(name.startswith("aiodev_entry") for name in found)
    assert all(hasattr(ctypes.CDLL(None), name) or name.startswith("NRT_") for name in found)


def text(i, x, out):
    out[i] = len(str(10 * i)) + len("v" + str(i))


def formatted(i, x, out):
    if x[i] < 0:
        raise ValueError(f"negative at {i}")
    out[i] = 1


def buffered(i, x, out):
    own = np.zeros(100)
    own[i] = x[i]
    out[i] = own.sum()


def tabled(i, x, out):
    table = {1: 2.0}
    table[i] = 3.0
    out[i] = table[i] + table[1]


def named(i, x, out):
    table = {"a": 1.0, "b": x[i]}
    table["c"] = 2.0
    out[i] = table["a"] + table["b"] + table["c"]


def ordered(i, x, out):
    out[i] = np.sort(np.array([3.0, 1.0, x[i]]))[0]


@numba.njit
def own_sum(value):
    own = np.zeros(100)
    own[3] = value
    return own.sum() + len(str(3))


def helped(i, x, out):
    out[i] = own_sum(x[i])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (text, [3, 4]),
        (formatted, "negative at 1"),
        (buffered, [1, -1]),
        (tabled, [5, 6]),
        (named, [4, 2]),
        (ordered, [1, -1]),
        (helped, [2, 0]),
    ],
)
def test_bodies_that_allocate(body: Any, expected: Any) -> None:
    """They have all of numba's allocator that they ask for, whoever of those that they call asks for it first."""
    with aiodev.Stream("cpu"):
        x, out = aiodev.asarray([1.0, -1.0]), aiodev.zeros(2)
        done = aiodev.kernel(body)[2](x, out)
    if isinstance(expected, list):
        done.synchronize_blocking(100)
        assert out.numpy_blocking().tolist() == expected
    else:
        with pytest.raises(aiodev.KernelError, match=expected):
            done.synchronize_blocking(100)


def remainders(i, j, x, y, out):
    total = 0.0
    for k in range(y.shape[0]):
        total += x[i, k % x.shape[1]] * y[k, j % y.shape[1]]
    out[i, j] = total


def summed(i, j, x, y, out):
    parts = np.abs(y[0])
    parts[0] += x[i, j]
    out[i, j] = parts.sum()


@needs_compiler
def test_a_body_that_allocates_behind_one_that_does_not() -> None:
    """What takes the place of numba's in the one, where nothing is freed, is not called by the other, which frees."""
    for body, expected in ((remainders, 2.0), (summed, 3.0)):
        x, y, out = np.ones((2, 2)), np.ones((2, 2)), np.zeros((2, 2))
        run(body, (2, 2), x, y, out)
        assert (out == expected).all()


def factorial(number):
    return 1 if number < 2 else number * factorial(number - 1)


def is_even(number):
    if number == 0:
        return True
    return is_odd(number - 1)


def is_odd(number):
    if number == 0:
        return False
    return is_even(number - 1)


def test_functions_that_call_themselves_or_each_other() -> None:
    """Whatever types they are called with first: a number in the source has one of its own."""

    @aiodev.kernel
    def recursive(i, out):
        out[i] = factorial(5) + factorial(i + 3) + is_even(4) + is_odd(i)

    with aiodev.Stream("cpu"):
        out = aiodev.zeros(2)
        recursive[2](out).synchronize_blocking(100)
        assert out.numpy_blocking().tolist() == [120 + 6 + 1, 120 + 24 + 2]


@needs_compiler
def test_code_that_nothing_here_can_complete_is_refused() -> None:
    """By the name of what is missing, where LLVM would end the process."""
    module = llvm().parse_assembly("declare i32 @no_such_thing() define i32 @f() { %1 = call i32 @no_such_thing() ret i32 %1 }")
    machine = make_machine()
    module.triple = machine.triple
    with pytest.raises(ImportError, match="takes no_such_thing from outside"):
        kernel_object.link(kernel_object.KernelObject("f", (), machine.emit_object(module)))


def test_other_formats_are_not_guessed_at() -> None:
    """What such a file takes from outside counts as not known."""
    assert kernel_object.outside(b"\xcf\xfa\xed\xfe" + bytes(100)) is None
    assert kernel_object.KernelObject("symbol", (), b"\xcf\xfa\xed\xfe").needs_numba


@needs_compiler
def test_code_that_frees_nothing_needs_no_allocator() -> None:
    """numba counts references to the arrays of a launch, which the kernel does not own."""

    def swapped(i: int, x: Any, y: Any) -> None:
        for _ in range(i):
            x, y = y, x
        x[0] = i

    x, y = np.zeros(1), np.zeros(1)
    assert not compiled(swapped, x, y).needs_numba
    Entry(swapped, 4, x, y)(x, y)
    assert (x[0], y[0]) == (2, 3)


def test_what_files_are_made_for_is_known_without_numba() -> None:
    """The processor, and the sources and versions of what compiles."""
    code = "import sys; from aiodev._backends.cpu.compile import kernel_code as k; print(k.target(), 'numba' in sys.modules)"
    environment = {"PYTHONPATH": str(Path(aiodev.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{kernel_code.target()} False\n"

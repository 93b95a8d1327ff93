"""The CPU compiler: range entries called by their symbol."""

from __future__ import annotations

import ctypes
import math
import os
import re
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from kernel_entry import PROTOTYPE, Entry, block, descriptor, needs_compiler, run, spec_of
from programs import search_path
from selection import examples

from aiodev import lang
from aiodev._backends.compile import disk_cache
from aiodev._backends.cpu.compile import compiler, kernel_code
from aiodev._backends.cpu.compile.excinfo import decode_error
from aiodev._backends.cpu.compile.interpreted import interpreted_entry
from aiodev._core.backend.kernel_arguments import parse_arguments
from aiodev._core.errors import CompileError, KernelError
from aiodev._native.code_cache import folder_lock

NUMBERS = ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16"]
HERE = __file__


def saxpy(i: int, a: float, x: Any, y: Any, out: Any) -> None:
    out[i] = a * x[i] + y[i]


def test_saxpy() -> None:
    """A one-dimensional kernel runs every index once."""
    x, y, out = np.arange(1000, dtype="f4"), np.ones(1000, "f4"), np.zeros(1000, "f4")
    run(saxpy, 1000, np.float32(2), x, y, out)
    assert (out == 2 * x + 1).all()


@needs_compiler
def test_saxpy_is_vectorised() -> None:
    """LLVM emits vector code for saxpy: multiplications of whole registers, in single precision."""
    x = np.zeros(8, "f4")
    result = compiler.compile_result(spec_of(saxpy, 1, (np.float32(2), x, x, x)))
    assert re.search(r"fmul <\d+ x float>", result.library.get_llvm_str())
    assert not re.search(r"fmul (<\d+ x )?double", result.library.get_llvm_str())


@needs_compiler
def test_rows_are_vectorised() -> None:
    """So it does for the rows of a plane, with a neighbour on the right."""

    def add(i: int, j: int, x: Any, out: Any) -> None:
        out[i, j] = x[i, j] + x[i, j + 1]

    x = np.zeros((8, 9), "f4")
    result = compiler.compile_result(spec_of(add, 2, (x, x)))
    assert re.search(r"fadd <\d+ x float>", result.library.get_llvm_str())


@pytest.mark.parametrize("code", NUMBERS)
def test_scalars_and_elements_of_every_type(code: str) -> None:
    """A scalar of each type arrives as it was packed, and is stored as an element."""

    def fill(i: int, value: Any, out: Any) -> None:
        out[i] = value

    value = np.array([3], code)[0]
    out = np.zeros(5, code)
    run(fill, 5, value, out)
    assert (out == value).all()


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 7), min_size=2, max_size=3), st.data())
def test_any_range_of_a_plane_or_volume(shape: list[int], data: st.DataObject) -> None:
    """Whatever range of flat indices is asked for is run, in C order, and nothing else."""
    total = math.prod(shape)
    lo = data.draw(st.integers(0, total))
    hi = data.draw(st.integers(lo, total))
    out = np.zeros(shape, "i8")
    _mark_entry(len(shape), out)(out, lo=lo, hi=hi)
    expected = np.zeros(total, "i8")
    expected[lo:hi] = _marks(shape)[lo:hi]
    assert (out.ravel() == expected).all()


def _marks(shape: list[int]) -> np.ndarray[Any, Any]:
    return np.array([1 + sum(10**d * i for d, i in enumerate(index)) for index in np.ndindex(*shape)], "i8")


def _mark_plane(i: int, j: int, out: Any) -> None:
    out[i, j] += 1 + i + 10 * j


def _mark_volume(i: int, j: int, k: int, out: Any) -> None:
    out[i, j, k] += 1 + i + 10 * j + 100 * k


_entries: dict[int, Entry] = {}


def _mark_entry(ndim: int, out: np.ndarray[Any, Any]) -> Entry:
    if ndim not in _entries:
        _entries[ndim] = Entry(_mark_plane if ndim == 2 else _mark_volume, (1,) * ndim, np.zeros((1,) * ndim, "i8"))
    _entries[ndim].shape = out.shape
    return _entries[ndim]


def test_strided_and_reversed_arrays() -> None:
    """An array of layout A is read by its strides, negative ones too; its neighbours are left alone."""
    x = np.arange(24.0).reshape(4, 6)
    out = np.zeros((6, 8))

    def copy(i: int, j: int, x: Any, out: Any) -> None:
        out[i, j] = x[i, j]

    target = out[::2, ::-2]
    run(copy, (3, 4), x.T[::2], target)
    assert (target == x.T[::2]).all()
    assert out.sum() == target.sum()


def test_zero_dimensional_and_empty_arrays() -> None:
    """A 0-d array is read by ``x[()]``; an empty range runs nothing."""

    def take(i: int, x: Any, out: Any) -> None:
        out[i] = x[()]

    out = np.zeros(3)
    run(take, 3, np.array(5.0), out)
    assert out.tolist() == [5, 5, 5]
    run(take, 0, np.array(5.0), np.zeros(0))


def test_negative_indices_wrap() -> None:
    """``x[i - 1]`` at 0 is the last element, as in Python."""

    def previous(i: int, x: Any, out: Any) -> None:
        out[i] = x[i - 1]

    x, out = np.arange(4.0), np.zeros(4)
    run(previous, 4, x, out)
    assert out.tolist() == [3, 0, 1, 2]


def test_what_a_body_calls_is_compiled_with_it() -> None:
    """Plain functions may be called, through globals and closures, recursively."""
    scale = 3.0

    def scaled(v: float) -> float:
        return _twice(v) * scale

    def apply(i: int, x: Any, out: Any) -> None:
        out[i] = scaled(x[i])

    out = np.zeros(2)
    run(apply, 2, np.array([1.0, 2.0]), out)
    assert out.tolist() == [6, 12]


def _twice(v: float) -> float:
    return v + v


def raise_static(i: int, x: Any) -> None:
    if x[i] > 2:
        raise ValueError("bad row", 3)


def raise_computed(i: int, x: Any) -> None:
    if x[i] > 2:
        raise ValueError("bad row", i, x[i])


def raise_array(i: int, x: Any) -> None:
    if x[i] > 2:
        raise ValueError("bad row", i, (x, 1))


def divide(i: int, x: Any) -> None:
    x[i] = 10 // (i - 2)


def remainder(i: int, x: Any) -> None:
    x[i] = 10 % (i - 2)


def overrun(i: int, x: Any) -> None:
    x[i + 2] = 0


@pytest.mark.parametrize(
    ("body", "options", "kind", "arguments"),
    [
        (raise_static, {}, ValueError, ("bad row", 3)),
        (raise_computed, {}, ValueError, ("bad row", 3, 3.0)),
        (raise_array, {}, ValueError, ("bad row", 3, ("<float64 array of shape (5,)>", 1))),
        pytest.param(divide, {}, ZeroDivisionError, ("integer division by zero",), marks=needs_compiler),
        pytest.param(remainder, {}, ZeroDivisionError, ("integer modulo by zero",), marks=needs_compiler),
        pytest.param(overrun, {"boundscheck": True}, IndexError, ("index is out of bounds",), marks=needs_compiler),
    ],
)
def test_errors_come_with_their_line(
    body: Any, options: dict[str, bool], kind: type[Exception], arguments: tuple[Any, ...]
) -> None:
    """What a body raises is the cause, with its arguments, and the line is the one that raised."""
    entry = Entry(body, 5, np.arange(5.0), **options)
    for _ in range(2):
        with pytest.raises(KernelError) as caught:
            entry(np.arange(5.0))
        assert type(caught.value.__cause__) is kind
        assert caught.value.__cause__.args == arguments
        line = body.__code__.co_firstlineno + (2 if "raise" in body.__name__ else 1)
        assert caught.value.location == f"{HERE}:{line}"
        assert body.__name__ in str(caught.value)


@numba.njit
def small(v: float) -> float:
    if v > 2:
        raise ValueError("too large")
    return v


def of_none(x: Any) -> Any:
    return np.max(x[5:])


def of_numpy(i: int, x: Any) -> None:
    x[i] = np.max(x[5:])


def of_a_copy(i: int, x: Any) -> None:
    x[:3] = x[:2]


def of_lang(i: int, x: Any) -> None:
    lang.matmul(x, x, x)


def of_an_update(i: int, x: Any) -> None:
    lang.atomic_add(x, i * 2, 1.0)


def of_a_power(i: int, x: Any) -> None:
    x[i] = x[i] ** (i - 2**63)


def of_another_power(i: int, x: Any) -> None:
    x[i] = 3.0 + x[i] ** (i - 2**63)


def of_a_function(i: int, x: Any) -> None:
    x[i] = 1 + of_none(x)


def of_a_jitted_one(i: int, x: Any) -> None:
    x[i] = small(x[i])


@needs_compiler
@pytest.mark.parametrize(
    ("body", "named"),
    [
        (of_numpy, of_numpy),
        (of_a_copy, of_a_copy),
        (of_an_update, of_an_update),
        (of_a_power, of_a_power),
        (of_another_power, of_another_power),
        (of_a_function, of_none),
    ],
)
def test_errors_name_the_program_s_line(body: Any, named: Any) -> None:
    """What fails in NumPy's functions, the library's or the compiler's own has the line that led there, each kernel its own."""
    entry = Entry(body, 5, np.arange(5.0), boundscheck=True)
    with pytest.raises(KernelError) as caught:
        entry(np.arange(5.0))
    assert caught.value.location == f"{HERE}:{named.__code__.co_firstlineno + 1}"


@needs_compiler
def test_errors_of_products_name_the_program_s_line() -> None:
    """So have the functions of :mod:`aiodev.lang` that are compiled for a kernel."""
    entry = Entry(of_lang, 1, np.ones((2, 3)))
    with pytest.raises(KernelError, match="the shapes do not fit") as caught:
        entry(np.ones((2, 3)))
    assert caught.value.location == f"{HERE}:{of_lang.__code__.co_firstlineno + 1}"


@needs_compiler
def test_errors_name_a_jitted_function_s_line() -> None:
    """A function that the program has jitted is the program's, too."""
    entry = Entry(of_a_jitted_one, 5, np.arange(5.0))
    with pytest.raises(KernelError, match="too large") as caught:
        entry(np.arange(5.0))
    assert caught.value.location == f"{HERE}:{small.py_func.__code__.co_firstlineno + 3}"


@needs_compiler
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not say how large a process is")
def test_what_is_caught_leaves_nothing() -> None:
    """The place of a failure is kept until somebody asks; where the body catches it, nobody will."""

    def caught(i: int, x: Any) -> None:
        try:
            x[0] = of_none(x)
        except Exception:
            x[0] = -1.0

    x = np.arange(5.0)
    entry = Entry(caught, 1_000_000, x)
    entry(x, hi=1000)
    before = _resident()
    entry(x)
    assert x[0] == -1
    assert _resident() - before < 16 << 20


def _resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


@needs_compiler
def test_one_failure_may_be_decoded_twice() -> None:
    """The arguments of a computed exception are read once, from memory that reading frees, and nobody keeps them."""
    x = np.arange(5.0)
    code = PROTOTYPE(kernel_code.load_kernel(spec_of(raise_computed, 1, (x,)), ""))
    result, excinfo = (ctypes.c_void_p * 2)(), ctypes.c_void_p()
    assert code(ctypes.byref(result), ctypes.byref(excinfo), block((5,), (x,)), 0, 5) != 0
    first, second = (decode_error(excinfo.value or 0, "k") for _ in range(2))
    assert first.__cause__.args == ("bad row", 3, 3.0)
    assert second.__cause__.args == ("bad row",)


def test_floating_division_follows_ieee() -> None:
    """``/`` gives inf and nan, as it does for arrays; it raises nothing, and so can be vectorised."""

    def divided(i: int, x: Any, y: Any, out: Any) -> None:
        out[i] = x[i] / y[i]

    x, y, out = np.array([1.0, 0.0]), np.zeros(2), np.zeros(2)
    run(divided, 2, x, y, out)
    assert out[0] == np.inf and np.isnan(out[1])


@needs_compiler
def test_compile_error_names_the_line() -> None:
    """What numba refuses is a CompileError with its message and the line in the body."""

    def wrong(i: int, x: Any) -> None:
        y = 1
        x[i] = "text" + y

    with pytest.raises(CompileError) as caught:
        run(wrong, 1, np.zeros(1))
    assert "Invalid use" in caught.value.log or "No implementation" in caught.value.log
    assert caught.value.location == f"{HERE}:{wrong.__code__.co_firstlineno + 2}"


@needs_compiler
def test_unsupported_syntax_is_a_compile_error() -> None:
    """So is what numba does not even read."""

    def wrong(i: int, x: Any) -> None:
        with open("x") as file:
            x[i] = len(file.read())

    with pytest.raises(CompileError):
        run(wrong, 1, np.zeros(1))


@needs_compiler
def test_disk_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled kernel is found again; a damaged file is deleted."""
    x = np.ones(4, "f4")
    spec = spec_of(saxpy, 1, (np.float32(2), x, x, x), key="ab" * 32)
    kernel_code.compile_kernel(spec, str(tmp_path))
    (file,) = tmp_path.rglob("*.bin")
    assert disk_cache.read(file) is not None
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "compile_result", None)
        assert kernel_code.load_kernel(spec, str(tmp_path))
    file.write_bytes(file.read_bytes()[:-100])
    assert disk_cache.read(file) is None and not file.exists()


@needs_compiler
def test_a_kernel_that_another_process_compiles_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that start together make each kernel once."""
    x = np.ones(4, "f4")
    spec = spec_of(saxpy, 1, (np.float32(2), x, x, x), key="ac" * 32)
    made, there = tmp_path / "made", tmp_path / "there"
    kernel_code.compile_kernel(spec, str(made))
    (file,) = made.rglob("*.bin")
    path = there / file.relative_to(made)
    monkeypatch.setattr(compiler, "compile_object", None)
    with ThreadPoolExecutor(1) as pool:
        with folder_lock(path.parent):
            waiting = pool.submit(kernel_code.compile_kernel, spec, str(there))
            assert not wait({waiting}, 0.05).done
            path.write_bytes(file.read_bytes())
        waiting.result(30)


@needs_compiler
def test_files_of_kernels_hold_no_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of one whose code wants Python objects back, here for an exception that it computes."""

    def refuse(*data: Any) -> Any:
        raise AssertionError("a pickle was loaded")

    def checked(i: int, x: Any) -> None:
        if x[i] > 1:
            raise ValueError("bad", x[i])

    spec = spec_of(checked, 1, (np.ones(4),), key="cd" * 32)
    kernel_code.compile_kernel(spec, str(tmp_path))
    monkeypatch.setattr(compiler, "compile_result", None)
    monkeypatch.setattr(disk_cache.pickle, "loads", refuse)
    (file,) = tmp_path.rglob("*.bin")
    parts = disk_cache.read(file)
    assert parts is not None and len(parts) > 2, "it has an environment"
    assert kernel_code.load_kernel(spec, str(tmp_path))


@pytest.mark.parametrize(
    "value", [[], [1, -2.5, "text", b"bytes", None, True, (1j, {"a": [1]})], {3: (("builtins", "ValueError"), ("x",), None)}]
)
def test_values_are_kept_as_literals(value: Any) -> None:
    """Those that have one, which says all that they are."""
    data = disk_cache.pack(value)
    assert data == b"=" + repr(value).encode()
    assert repr(disk_cache.unpack(data)) == repr(value)


@needs_compiler
@pytest.mark.parametrize("value", [[np.float32(1)], [float("nan")], [np.dtype("f4")]])
def test_values_without_a_literal_are_pickled(value: Any) -> None:
    """They come back as they were."""
    data = disk_cache.pack(value)
    assert data[:1] == b"!"
    found = disk_cache.unpack(data)
    assert repr(found) == repr(value) and type(found[0]) is type(value[0])


@pytest.mark.parametrize("parts", [[], [b""], [b"one", b"", b"three" * 1000]])
def test_a_file_gives_back_what_was_written(tmp_path: Path, parts: list[bytes]) -> None:
    """And nothing once a byte of it is another, or one is missing or too many."""
    file = tmp_path / "folder" / "file.bin"
    disk_cache.write(file, parts)
    assert disk_cache.read(file) == parts
    assert file.stat().st_mode & 0o077 == file.parent.stat().st_mode & 0o077 == 0 or sys.platform == "win32"
    whole = file.read_bytes()
    for position in range(0, len(whole), max(1, len(whole) // 50)):
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        assert disk_cache.read(file) is None
        file.write_bytes(whole[:position])
        assert disk_cache.read(file) is None
    file.write_bytes(whole + b"x")
    assert disk_cache.read(file) is None


@needs_compiler
def test_constants_that_cannot_be_unpickled_count_as_absent(tmp_path: Path) -> None:
    """Another version of a package has written them; the kernel is compiled again."""
    x = np.ones(4, "f4")
    spec = spec_of(saxpy, 1, (np.float32(2), x, x, x), key="ef" * 32)
    kernel_code.compile_kernel(spec, str(tmp_path))
    (file,) = tmp_path.rglob("*.bin")
    parts = disk_cache.read(file)
    assert parts is not None
    disk_cache.write(file, [*parts, b"environment", b"!no pickle"])
    assert kernel_code.cached_kernel(spec, str(tmp_path)) is None


@needs_compiler
def test_interpreted_entry_agrees() -> None:
    """Where numba may not compile, the interpreter runs the same block the same way."""
    x, y = np.arange(12.0).reshape(3, 4), np.arange(24.0).reshape(4, 6)[:, ::-2].T
    out, compiled = np.zeros((3, 4)), np.zeros((3, 4))

    def add(i: int, j: int, a: float, x: Any, y: Any, out: Any) -> None:
        out[i, j] = a * x[i, j] - y[i, j]

    values = (np.float64(2), x, y, out)
    arguments = parse_arguments(2, tuple(map(descriptor, values)))
    interpreted_entry("add", add, 2, arguments)(block((3, 4), values), 1, 11)
    Entry(add, (3, 4), np.float64(2), x, y, compiled)(np.float64(2), x, y, compiled, lo=1, hi=11)
    assert (out == compiled).all()


def test_a_new_process_can_raise_from_the_cache(tmp_path: Path) -> None:
    """A computed exception allocates; a process that only loads code must be able to."""
    code = f"""
import ctypes, numpy as np
from kernel_entry import block, decode_error, kernel_code, spec_of, PROTOTYPE
def body(i, x):
    if x[i] > 1:
        raise ValueError("bad", x[i])
x = np.arange(3.0)
address = kernel_code.load_kernel(spec_of(body, 1, (x,), key="k"), {str(tmp_path)!r})
result, excinfo = (ctypes.c_void_p * 2)(), ctypes.c_void_p()
assert PROTOTYPE(address)(ctypes.byref(result), ctypes.byref(excinfo), block((3,), (x,)), 0, 3) != 0
print(decode_error(excinfo.value, "k").__cause__.args)
"""
    environment = {"PYTHONPATH": search_path()}
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        assert done.stdout == "('bad', 2.0)\n", done.stderr

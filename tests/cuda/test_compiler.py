"""Kernels compiled to cubins for sm_90, with numba-cuda and the toolkit but neither a driver nor a GPU."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from aiodev import lang
from aiodev._backends.cpu.compile import kernel_code
from aiodev._core.backend.interface import KernelSpec
from aiodev._core.errors import CompileError
from aiodev.dtypes import DTYPES

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'aiodev[cuda]'")

from numba.cuda import codegen
from numba.cuda.cudadrv import nvvm

from aiodev._backends.cuda.compile import compiler, image, sort, target  # they import numba-cuda
from aiodev._backends.cuda.compile.image_loader import load_image

SM_90 = (9, 0)
real = nvvm.compile_ir
NUMBERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16")


def compiled(function: Callable[..., None], *arguments: str, ndim: int = 1, **options: bool) -> image.Image:
    """The image of a body for these types."""
    spec = KernelSpec(function.__name__, function, ndim, arguments, tuple(options.items()))
    return compiler.compile_image(spec, SM_90)


def axpy(i: int, a: Any, x: Any, y: Any, out: Any) -> None:
    out[i] = a * x[i] + y[i]


@pytest.mark.parametrize("code", NUMBERS)
@pytest.mark.parametrize("layout", "CA")
def test_a_body_becomes_a_cubin(code: str, layout: str) -> None:
    """One source, any type of number, arrays with and without gaps; what cannot fail says so."""
    made = compiled(axpy, code, f"A1{code}{layout}", f"A1{code}{layout}r", f"A1{code}{layout}")
    assert made.cubin.startswith(b"\x7fELF")
    assert made.symbol == "aiodev_axpy" and made.symbol.encode() in made.cubin
    assert made.exceptions == {}


def ptx_of(function: Callable[..., None], *arguments: str, **options: Any) -> str:
    """What the optimiser makes of a body."""
    made: list[bytes] = []
    with (
        mock.patch.object(codegen.CUDACodeLibrary, "get_cubin", side_effect=lambda cc: mock.Mock(code=b"")),
        mock.patch.object(nvvm, "compile_ir") as compile_ir,
    ):
        compile_ir.side_effect = lambda *given, **options: made.append(real(*given, **options)) or made[-1]
        compiler.compile_image(KernelSpec(function.__name__, function, 1, arguments, tuple(options.items())), SM_90)
    return made[0].decode()


def test_loads_do_not_wait_for_stores() -> None:
    """Arrays do not alias and indices are not negative: several rounds' loads come before their stores, without a test."""
    loop = ptx_of(axpy, "f4", "A1f4C", "A1f4C", "A1f4C").rsplit("setp.lt.s64", 1)[0].rsplit("$L__", 1)[1]
    assert loop.count("ld.global.nc.f32") == 8 and loop.count("st.global.f32") == 4
    assert max(i for i, line in enumerate(loop.splitlines()) if "ld.global" in line) < min(
        i for i, line in list(enumerate(loop.splitlines()))[-8:] if "st.global" in line
    )
    assert "shr.s64" not in loop, "an index is tested for being negative"


def returns(i: int, x: Any) -> None:
    if i > 0:
        return x[i]


def draws(i: int, x: Any) -> None:
    x[i] = np.random.random()


@pytest.mark.parametrize(
    ("body", "line", "found"), [(returns, 2, "returns a value"), (draws, 1, "aiodev.kernels.random")]
)
def test_a_body_gives_nothing_and_draws_nothing(body: Callable[..., None], line: int, found: str) -> None:
    """As on the CPU: a value would be lost, and the host's random numbers are not there."""
    with pytest.raises(CompileError, match=found) as caught:
        compiled(body, "A1f4C")
    assert caught.value.location == f"{__file__}:{body.__code__.co_firstlineno + line}"


class BadRow(Exception):
    pass


user = types.ModuleType("user")
user.scaled = lambda value: 3 * value  # type: ignore[attr-defined]
#: What a worker has in the place of a class of the program.
stand_in = type("BadRow", (Exception,), {"__aiodev_class__": (__name__, "BadRow")})


def foreign(i: int, x: Any) -> None:
    x[i] = user.scaled(x[i])
    if x[i] > 100:
        raise stand_in("too large")


def test_a_program_s_own_classes_and_modules() -> None:
    """A module's functions are compiled with the body; an exception is of the class that its name is of."""
    made = pickle.loads(pickle.dumps(compiled(foreign, "A1f4C")))
    (status,) = made.exceptions
    cause = made.explain("foreign", status).__cause__
    assert type(cause) is BadRow and cause.args == ("too large",)


def halves(i: int, a: Any, x: Any, whole: Any, out: Any) -> None:
    value = abs(x[i]) + a * -x[i] / 3 + math.exp(x[i]) + x[i] ** 2 + 2.5 * x[i] + 3 * float(x[i])
    if x[i] == 0 or value < x[i]:
        value = np.float32(x[i])
    out[i] = value
    out[i] += x[i]
    whole[i] = x[i]


def test_float16_is_computed_with_in_float32() -> None:
    """As on the CPU: elements are converted, and nothing is computed in halves, nor rounded to an integer's nearest."""
    text = ptx_of(halves, "f2", "A1f2C", "A1i4C", "A1f2C")
    assert "cvt.f32.f16" in text and "cvt.rn.f16.f32" in text and "cvt.rzi.s32.f32" in text
    assert "cvt.rni" not in text and ".extern .func" not in text
    assert compiled(halves, "f2", "A1f2C", "A1i4C", "A1f2C").exceptions == {}
    for code in ("b1", "i1", "u8", "f8"):
        assert compiled(convert, f"A1{code}C", "A1f2C").cubin and compiled(convert, "A1f2C", f"A1{code}C").cubin


def convert(i: int, x: Any, out: Any) -> None:
    out[i] = x[i]


@pytest.mark.parametrize("given", ["f2", "bf2", "f4", "f8"])
@pytest.mark.parametrize(("wanted", "width"), [("i1", 32), ("u1", 32), ("i2", 32), ("u2", 32), ("u4", 64)])
def test_floats_become_narrow_integers_by_way_of_wider_ones(given: str, wanted: str, width: int) -> None:
    """Which keep the lower bits, as on the CPU: an instruction for the integer itself takes the nearest number it has."""
    text = ptx_of(convert, f"A1{given}C", f"A1{wanted}C")
    assert f"cvt.rzi.s{width}." in text and text.count("cvt.rzi.") == text.count(f"cvt.rzi.s{width}.")


def fill_plane(i: int, j: int, x: Any) -> None:
    x[i, j] = 10 * i + j


def fill_volume(i: int, j: int, k: int, x: Any) -> None:
    x[i, j, k] = i + j + k


@pytest.mark.parametrize(("function", "ndim"), [(fill_plane, 2), (fill_volume, 3)])
def test_more_dimensions(function: Callable[..., None], ndim: int) -> None:
    """Two and three dimensions have their own axes of the grid, and no division."""
    assert compiled(function, f"A{ndim}f4C", ndim=ndim).cubin
    assert compiled(function, f"A{ndim}f4A", ndim=ndim).exceptions == {}


def checked(value: int, row: int) -> int:
    if value < 0:
        raise ValueError("bad row", 3)
    return value // row


def reject(i: int, x: Any, y: Any, out: Any) -> None:
    out[i] = checked(x[i], y[i])
    if x[i] == 7:
        raise KeyError("seven")


def test_what_a_body_raises_has_a_status() -> None:
    """Exceptions of the body and of what it calls, and an integer zero division, are told apart, with their lines."""
    made = compiled(reject, "A1i8C", "A1i8C", "A1i8C")
    first = reject.__code__.co_firstlineno
    kinds = {(kind, arguments): where[2] for kind, arguments, where in made.exceptions.values() if where}
    assert kinds[ValueError, ("bad row", 3)] == checked.__code__.co_firstlineno + 2
    assert kinds[KeyError, ("seven",)] == first + 3
    status = next(s for s, (kind, arguments, _) in made.exceptions.items() if arguments == ("bad row", 3))
    error = made.explain("reject", status)
    assert isinstance(error.__cause__, ValueError) and error.__cause__.args == ("bad row", 3)
    assert error.location == f"{__file__}:{checked.__code__.co_firstlineno + 2}"
    zero = [where for kind, _, where in made.exceptions.values() if kind is ZeroDivisionError]
    assert any(where[1] == __file__ for where in zero)
    assert pickle.loads(pickle.dumps(made)) == made


def shift(i: int, x: Any, out: Any) -> None:
    out[i + 1] = x[i]


def test_bounds_are_checked_on_demand() -> None:
    """Only a kernel that asks for it can fail with an IndexError."""
    assert compiled(shift, "A1f4A", "A1f4C").exceptions == {}
    made = compiled(shift, "A1f4A", "A1f4C", boundscheck=True)
    assert any(kind is IndexError for kind, _, _ in made.exceptions.values())


def test_numba_cuda_is_left_as_it_was() -> None:
    """What compiling changes in numba-cuda is undone, after a failure too."""
    from numba.cuda import dispatcher
    from numba.cuda.core import callconv

    before = dispatcher.get_current_device, callconv.error_models["numpy"]
    with pytest.raises(RuntimeError, match="inside"), target.compiling_for(SM_90, True):
        assert dispatcher.get_current_device().compute_capability == SM_90
        raise RuntimeError("inside")
    assert (dispatcher.get_current_device, callconv.error_models["numpy"]) == before


def atomics(i: int, x: Any, out: Any) -> None:
    old = lang.atomic_add(out, 0, x[i])
    lang.atomic_min(out, 1, old)
    lang.atomic_max(out, (2,), x[i])
    lang.atomic_cas(out, 3, old, x[i])


@pytest.mark.parametrize("code", ["i4", "i8", "u4", "u8", "f4", "f8"])
def test_atomics(code: str) -> None:
    """Elements of 4 and 8 bytes are updated by instructions."""
    assert compiled(atomics, f"A1{code}C", f"A1{code}C").exceptions == {}


@pytest.mark.parametrize("code", ["f4", "f8"])
def test_atomics_after_the_cpu_s(code: str) -> None:
    """A process that has compiled a kernel for the CPU, where its atomics are inlined, has the GPU's own for the GPU."""
    arguments = f"A1{code}C", f"A1{code}C"
    kernel_code.load_kernel(KernelSpec(atomics.__name__, atomics, 1, arguments), "")
    text = ptx_of(atomics, *arguments)
    assert f".add.f{8 * int(code[1:])}" in text and ".cas.b" in text
    with pytest.raises(CompileError, match="cannot be updated atomically on CUDA"):
        kernel_code.load_kernel(KernelSpec(atomics.__name__, atomics, 1, ("A1i2C", "A1i2C")), "")
        compiled(atomics, "A1i2C", "A1i2C")


@pytest.mark.parametrize("code", ["i1", "u2"])
def test_small_atomics_are_refused(code: str) -> None:
    """The hardware has none for smaller elements; the error says so and where."""
    with pytest.raises(CompileError, match="cannot be updated atomically on CUDA") as caught:
        compiled(atomics, f"A1{code}C", f"A1{code}C")
    assert caught.value.location is not None and caught.value.location.startswith(__file__)


def numeric(i: int, x: Any, out: Any) -> None:
    out[i] = lang.fma(x[i], x[i], lang.rsqrt(x[i])) + math.exp(x[i]) + lang.popcount(i)


@pytest.mark.parametrize("code", ["f4", "f8"])
def test_numeric_functions(code: str) -> None:
    """What :mod:`aiodev.lang` has, and ``math``, is there."""
    assert compiled(numeric, f"A1{code}C", f"A1{code}C").cubin


def sort_sixteen(i: int, x: Any) -> None:
    lang.sort(x[16 * i : 16 * i + 16])


@pytest.mark.parametrize("code", ["f4", "u8"])
def test_sorting(code: str) -> None:
    """Each thread its own few."""
    assert compiled(sort_sixteen, f"A1{code}C").cubin


def multiply_four(i: int, x: Any, y: Any, out: Any) -> None:
    """Each index its own four rows."""
    lang.matmul(x[4 * i : 4 * i + 4], y, out[4 * i : 4 * i + 4])


@pytest.mark.parametrize("code", ["f2", "f4", "c16", "i4"])
def test_products(code: str) -> None:
    """Loops, element by element."""
    assert compiled(multiply_four, *[f"A2{code}C"] * 3).cubin


@pytest.mark.parametrize("code", ["f2", "bf2"])
def test_products_of_factors_of_16_bits(code: str) -> None:
    """Multiplied as float32."""
    for kinds in ((code, "f4"), ("f4", code), (code, code)):
        assert ".f32" in ptx_of(multiply_four, *[f"A2{kind}C" for kind in (*kinds, "f4")])


def sum_sixteen(i: int, x: Any, out: Any) -> None:
    """Each index its own sixteen."""
    out[i] = lang.sum(x[16 * i : 16 * i + 16]) + lang.sum(x[:i], 3000, wide=True)
    out[i] += lang.sum_squares(x[16 * i : 16 * i + 16]) + lang.sum_squares(x[:i], 0.5, 4500) + lang.moments(x[:i], 4500)[1]


@pytest.mark.parametrize(("code", "wide"), [("f4", "f8"), ("u2", "u8"), ("b1", "i8"), ("c8", "c16")])
def test_summing(code: str, wide: str) -> None:
    """A loop, wide."""
    assert compiled(sum_sixteen, f"A1{code}C", f"A1{wide}C").cubin


def test_heap_is_sorted() -> None:
    """NaN is last."""
    rng = np.random.default_rng(1)
    for size in range(50):
        x = rng.choice(np.array([-np.inf, -1, 0, 1, 2, np.nan]), size)
        expected = np.sort(x)
        sort.sort_heap(x)
        np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize(
    "name", ["absolute", "add", "exp", "expm1", "floor", "log1p", "power", "rint", "sign", "sqrt", "trunc"]
)
def test_numpy_functions(name: str) -> None:
    """Functions of NumPy that numba-cuda lacks are there all the same."""
    function: Any = getattr(np, name)

    def one(i: int, x: Any, out: Any) -> None:
        out[i] = function(x[i])

    def two(i: int, x: Any, out: Any) -> None:
        out[i] = function(x[i], x[i])

    for code in ("f4", "f8"):
        assert compiled(one if function.nin == 1 else two, f"A1{code}C", f"A1{code}C").cubin


def unknown(i: int, x: Any) -> None:
    x[i] = x.no_such_attribute


def test_a_body_that_does_not_compile_says_why() -> None:
    """The error has numba's message, without its passes, and the line."""
    with pytest.raises(CompileError, match="no_such_attribute") as caught:
        compiled(unknown, "A1f4C")
    assert caught.value.location == f"{__file__}:{unknown.__code__.co_firstlineno + 1}"


def test_a_block_of_a_given_size_has_registers_for_its_threads() -> None:
    """The assembler is told how many there are; where none is given the backend chooses what fits."""
    assert ".maxntid 512" in ptx_of(axpy, "f4", "A1f4C", "A1f4C", "A1f4C", block=512)
    assert ".maxntid" not in ptx_of(axpy, "f4", "A1f4C", "A1f4C", "A1f4C")


def _shared(x: Any, k: int) -> Any:
    part = lang.team_array(64, np.float64)
    part[lang.team_rank()] = x[k]
    lang.team_barrier()
    return part[k]


def _by_way_of(x: Any, k: int) -> Any:
    return _shared(x, k) + 1.0


def test_an_array_of_a_team_is_one_by_whatever_way_it_is_reached() -> None:
    """A function that is called directly, and by another, has its array once."""

    def both(i: int, x: Any, out: Any) -> None:
        out[i] = _shared(x, i) + _by_way_of(x, i)

    assert ptx_of(both, "A1f8C", "A1f8C", block=64, team=True).count(".b8 _cudapy_smem") == 1


def test_numpy_without_what_numba_cuda_names() -> None:
    """NumPy 2.5 dropped ``row_stack``, which numba-cuda needs to be imported at all; NumPy is left as it was."""
    code = """
import numba.np.arrayobj, numpy  # numba itself knows
vars(numpy).pop("row_stack", None)
from aiodev._backends.cuda.compile import compiler
print(hasattr(numpy, "row_stack"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n", done.stderr


def test_the_disk_cache_is_by_architecture(tmp_path: Path) -> None:
    """A second load reads what the first wrote; another architecture has its own; a damaged file is compiled anew."""
    spec = KernelSpec("axpy", axpy, 1, ("f4", "A1f4C", "A1f4C", "A1f4C"), (), "0" * 64)
    assert image.cached_image(spec, str(tmp_path), SM_90, 12) is None
    first = load_image(spec, str(tmp_path), SM_90, 12)
    assert image.cached_image(spec, str(tmp_path), SM_90, 12) == first
    (file,) = tmp_path.rglob("*.bin")
    written = file.read_bytes()
    assert load_image(spec, str(tmp_path), SM_90, 12) == first
    other = load_image(spec, str(tmp_path), (8, 0), 12)
    assert image.cached_image(spec, str(tmp_path), SM_90, 13) is None, "another driver may need another toolkit"
    assert other.cubin != first.cubin and len(list(tmp_path.rglob("*.bin"))) == 2
    file.write_bytes(written[:-1])
    assert image.cached_image(spec, str(tmp_path), SM_90, 12) is None
    again = load_image(spec, str(tmp_path), SM_90, 12)
    assert load_image(spec, str(tmp_path), SM_90, 12) == again, "a damaged file was not replaced"


@pytest.mark.parametrize("code", [code for code, row in DTYPES.items() if row.kind != "c"])
def test_bfloat16_is_converted_from_and_to_every_dtype(code: str) -> None:
    """By integer instructions that every architecture has."""

    def convert(i: int, x: Any, y: Any, out: Any, back: Any) -> None:
        out[i] = x[i]
        back[i] = y[i]

    compiled(convert, f"A1{code}C", "A1bf2Cr", "A1bf2C", f"A1{code}C")


def test_bfloat16_is_computed_with_in_float32() -> None:
    """A load shifts bits up, a store rounds; between them there is single precision, and no function of CUDA's headers."""

    def body(i: int, a: Any, x: Any, out: Any) -> None:
        v = x[i]
        best = v if v > 0 else -v
        if v:
            best += np.floor(v) * a
        best += min(v, x[0]) + math.sqrt(abs(v)) + lang.exp(v) + lang.hypot(v, v) + float(v) + np.float32(int(v))
        out[i] = best + lang.bfloat16(a)

    assert "call" not in ptx_of(body, "f4", "A1bf2C", "A1bf2C")
    text = ptx_of(axpy, "f4", "A1bf2C", "A1bf2C", "A1bf2C")
    assert "st.global.u16" in text and "f32" in text and "f64" not in text and "call" not in text


def test_a_move_of_bfloat16_is_not_rounded() -> None:
    """Numbers are what they were."""

    def move(i: int, x: Any, out: Any) -> None:
        out[i] = x[i]

    text = ptx_of(move, "A1bf2C", "A1bf2C")
    assert "32767" not in text and ".f32" not in text


def test_sums_and_shared_memory_of_bfloat16() -> None:
    """Sums are in double precision; a team's array of it holds float32, so that what threads exchange is not rounded."""

    def total(i: int, x: Any, out: Any) -> None:
        out[i] = lang.sum(x[i]) + lang.moments(x[i])[1] + x.dtype.type(0)

    def exchanged(i: int, x: Any, out: Any) -> None:
        shared = lang.team_array(32, x.dtype)
        shared[lang.team_rank()] = x[i] * 3
        lang.team_barrier()
        out[i] = shared[0]

    compiled(total, "A2bf2C", "A1bf2A")
    assert "st.shared.f32" in ptx_of(exchanged, "A1bf2C", "A1f4C", team=True, block=32)


def test_atomics_of_bfloat16_are_refused() -> None:
    """There is no instruction; the message names the type."""

    def add(i: int, x: Any) -> None:
        lang.atomic_add(x, i, 1)

    with pytest.raises(CompileError, match="atomic_add: elements of bfloat16 cannot be updated atomically on CUDA"):
        compiled(add, "A1bf2C")

"""The elementary functions of aiodev.lang: their errors over every exponent, their special values, and their code."""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev import lang
from aiodev._backends.cpu.compile import kernel_code
from aiodev._core.backend.interface import KernelSpec

#: Largest error by function, in units in the last place: float32, float64. Docstrings state these.
ERRORS = {
    "acos": (1.2, 1.2),
    "acosh": (1.5, 1.6),
    "asin": (1.2, 1.2),
    "asinh": (1.3, 1.3),
    "atan": (1.3, 1.6),
    "atanh": (1.1, 1.1),
    "cbrt": (1.2, 1.0),
    "cos": (1.6, 0.82),
    "cosh": (1.5, 1.5),
    "exp": (0.98, 1.05),
    "exp2": (0.9, 0.9),
    "expit": (1.5, 1.5),
    "expm1": (1.1, 1.2),
    "log": (1.2, 0.85),
    "log10": (1.0, 0.75),
    "log1p": (0.9, 0.9),
    "log2": (1.0, 0.8),
    "sin": (1.6, 0.82),
    "sinh": (1.7, 1.7),
    "tan": (1.1, 1.0),
    "tanh": (1.5, 1.5),
}
#: Where each function is neither 0, nor infinite, nor its argument.
RANGES = {
    "acos": (-1.0, 1.0),
    "acosh": (1.0, 20.0),
    "asin": (-1.0, 1.0),
    "asinh": (-20.0, 20.0),
    "atan": (-20.0, 20.0),
    "atanh": (-1.0, 1.0),
    "cbrt": (-9.0, 9.0),
    "cos": (-1000.0, 1000.0),
    "cosh": (-5.0, 5.0),
    "exp": (-750.0, 720.0),
    "exp2": (-1080.0, 1030.0),
    "expit": (-40.0, 40.0),
    "expm1": (-40.0, 720.0),
    "log": (0.3, 3.0),
    "log10": (0.3, 3.0),
    "log1p": (-0.99, 3.0),
    "log2": (0.3, 3.0),
    "sin": (-1000.0, 1000.0),
    "sinh": (-5.0, 5.0),
    "tan": (-1000.0, 1000.0),
    "tanh": (-5.0, 5.0),
}


def expit(x: Any) -> Any:
    """The logistic function of an array."""
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, x.dtype.type(1)) / (1 + small)


def numpys(name: str) -> str:
    """What NumPy calls it."""
    return name.replace("a", "arc", 1) if name.startswith("a") else name


def reference(name: str) -> Callable[..., Any]:
    """What computes the function in any precision."""
    return expit if name == "expit" else getattr(np, numpys(name))


functions = pytest.mark.parametrize("name", sorted(ERRORS))
precisions = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@functools.cache
def elementwise(name: str) -> aiodev.Kernel:
    """A kernel that applies the function."""
    function: Any = getattr(lang, name)

    @aiodev.kernel
    def apply(i: int, x: Any, out: Any) -> None:
        out[i] = function(x[i])

    return apply


def applied(name: str, host: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The function of each element, compiled."""
    x, out = aiodev.asarray(host, device="cpu"), aiodev.empty(len(host), host.dtype, "cpu")
    elementwise(name)[len(host)](x, out)
    return out.numpy_blocking()


def every_exponent(dtype: Any, count: int) -> np.ndarray[Any, Any]:
    """``count`` numbers of each exponent and sign, the least and the greatest among them, and both zeros."""
    bits, exponents, mantissa = (np.uint32, 255, 23) if dtype is np.float32 else (np.uint64, 2047, 52)
    fractions = np.random.default_rng(7).integers(0, 1 << mantissa, (exponents, count), dtype=bits)
    fractions[:, :3] = [0, 1, (1 << mantissa) - 1]
    values = (fractions | (np.arange(exponents, dtype=bits)[:, None] << bits(mantissa))).reshape(-1).view(dtype)
    return np.concatenate([values, -values])


def errors(found: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """In units in the last place of the result; infinite where only one is finite, or NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = exact.astype(found.dtype)
    info = np.finfo(found.dtype)
    exponent = np.maximum(np.frexp(exact)[1] - 1, info.minexp)
    with np.errstate(invalid="ignore"):
        distance = np.abs(found.astype(np.longdouble) - exact) / np.ldexp(np.longdouble(1), exponent - info.nmant)
    special = ~np.isfinite(rounded) | ~np.isfinite(found)
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    return np.where(special, np.where(same, 0.0, np.inf), distance).astype(float)


@functions
@precisions
def test_errors_are_within_the_stated_bounds(name: str, dtype: Any) -> None:
    """Over all exponents, and where the function changes most, next to the C library's extended precision."""
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("the reference needs a long double of more than 53 bits")
    check_errors(name, dtype, 40 if dtype is np.float64 else 300)


def check_errors(name: str, dtype: Any, count: int) -> None:
    """With ``count`` numbers of each exponent."""
    low, high = RANGES[name]
    spread = np.random.default_rng(8).uniform(low, high, 200_000)
    host = np.concatenate([every_exponent(dtype, count), spread.astype(dtype)])
    with np.errstate(all="ignore"):
        exact = reference(name)(host.astype(np.longdouble))
        found = errors(applied(name, host), exact)
    worst = int(np.argmax(found))
    assert found[worst] <= ERRORS[name][dtype is np.float64], f"{found[worst]} ulp at {host[worst]!r}"


@functions
@precisions
def test_a_result_does_not_depend_on_its_place(name: str, dtype: Any) -> None:
    """Vectors of any length, what is left of them, and single numbers have the same results, whatever is beside them."""
    (low, high), random = RANGES[name], np.random.default_rng(3)
    host = random.uniform(low, high, 275).astype(dtype)
    rare = np.array([0, -0.0, -1.5, 1e30, 1e-40, np.finfo(dtype).tiny / 4, np.inf, -np.inf, np.nan], dtype)
    for values in (host, np.where(random.random(275) < 0.4, random.choice(rare, 275), host)):
        expected = applied(name, values)
        for start in (1, 7, 13, 150, 274):
            np.testing.assert_array_equal(applied(name, values[start:]), expected[start:])


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names a processor of x86-64")
def test_processors_without_tables_in_registers() -> None:
    """What looks numbers up in registers has another form where no instruction does that."""
    code = (
        "import importlib.util as u, sys; s = u.spec_from_file_location('m', sys.argv[1]); m = u.module_from_spec(s)\n"
    )
    code += "s.loader.exec_module(m)\nfor name in ('log', 'tanh'): m.check_errors(name, m.np.float32, 20)"
    # The executor would be compiled for it, too.
    environment = {
        **os.environ,
        "AIODEV_EXECUTOR": "python",
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx2,+fma",
    }
    done = subprocess.run(
        [sys.executable, "-c", code, __file__], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@functions
@precisions
def test_special_values_are_numpys(name: str, dtype: Any) -> None:
    """Infinities, NaN, both zeros and what is out of the domain: values and signs."""
    host = np.array([0.0, -0.0, 1.0, -1.0, -2.0, np.inf, -np.inf, np.nan], dtype)
    with np.errstate(all="ignore"):
        expected = reference(name)(host)
    found = applied(name, host)
    np.testing.assert_allclose(found, expected, rtol=2 * np.finfo(dtype).eps)
    known = ~np.isnan(expected)
    assert (np.signbit(found) == np.signbit(expected))[known].all()


@functions
def test_integers_are_taken(name: str) -> None:
    """As double precision."""
    function: Any = getattr(lang, name)

    @aiodev.kernel
    def from_integers(i: int, x: Any, out: Any) -> None:
        out[i] = function(x[i])

    whole = np.arange(1, 5)
    out = aiodev.empty(4, np.float64, "cpu")
    from_integers[4](aiodev.asarray(whole, device="cpu"), out)
    with np.errstate(all="ignore"):
        expected = reference(name)(whole.astype(float))
    np.testing.assert_allclose(out.numpy_blocking(), expected, rtol=1e-15)


@pytest.mark.parametrize("name", sorted({*ERRORS, "sqrt"} - {"cbrt", "expit"}))
def test_complex_numbers(name: str) -> None:
    """Next to extended precision; special values as annex G of C99 has them, but for the signs that it leaves open."""
    random = np.random.default_rng(11)
    sizes, angles = np.exp(random.uniform(-20, 6, 4000)), random.uniform(-np.pi, np.pi, 4000)
    sizes[::2] = 1 + np.exp(random.uniform(-30, 0, 2000))
    parts = np.array([0.0, -0.0, 1.0, -1.5, 0.5, 30.0, 1e300, np.inf, -np.inf, np.nan])
    special = np.empty((len(parts), len(parts)), complex)
    special.real, special.imag = parts[:, None], parts
    host = np.concatenate([sizes * np.exp(1j * angles), special.ravel()])
    found = applied(name, host)
    with np.errstate(all="ignore"):
        exact = getattr(np, numpys(name))(host.astype(np.clongdouble))
        expected = exact.astype(complex)
    plain = np.isfinite(expected)
    if name in ("exp2", "expm1", "log1p"):
        plain[4000:] = False  # where NumPy's fail
    error = np.abs(found[plain] - exact[plain])
    with np.errstate(over="ignore"):
        close = 4 * np.finfo(float).eps * np.abs(exact[plain]) + 2 * np.finfo(np.longdouble).eps
    assert (error <= close).all()
    if name in ("exp2", "expm1", "log1p"):
        return
    if name == "acosh":  # of 0 + NaN i, where older C libraries have NaN for the imaginary part, too
        upright = (host.real == 0) & np.isnan(host.imag)
        assert np.isnan(found[upright].real).all()
        np.testing.assert_array_equal(np.abs(found[upright].imag), np.pi / 2)
        host, found, expected = host[~upright], found[~upright], expected[~upright]
    for mine, theirs in ((found.real, expected.real), (found.imag, expected.imag)):
        np.testing.assert_array_equal(np.isnan(mine), np.isnan(theirs))
        np.testing.assert_array_equal(np.isinf(mine), np.isinf(theirs))
        defined = np.isfinite(host) & ~np.isnan(theirs)
        np.testing.assert_array_equal(np.signbit(mine[defined]), np.signbit(theirs[defined]))


def test_parts_of_complex_numbers_are_accurate() -> None:
    """Where a plain formula cancels, or overflows in between, and in both types."""
    for dtype in (np.complex64, np.complex128):
        close = 2 * np.finfo(dtype).eps
        step = np.array([2.0**-20, 1 + 2.0**-20 * 1j, 2.0**-20 * 1j], dtype)
        log, log1p = applied("log", step), applied("log1p", step)
        np.testing.assert_allclose([log[1].real, log1p[2].real], [2.0**-41] * 2, rtol=max(close, 2.0**-40))
        np.testing.assert_allclose(log1p[0].real, np.log1p(2.0**-20), rtol=close)
        large = np.array([complex(np.finfo(dtype).max, np.finfo(dtype).max)], dtype)
        for name in ("sqrt", "log"):
            exact = getattr(np, name)(large.astype(np.clongdouble)).astype(dtype)
            np.testing.assert_allclose(applied(name, large), exact, rtol=close)
    np.testing.assert_array_equal(applied("expm1", np.array([np.inf + 0j, -np.inf + 1j])), [np.inf + 0j, -1 + 0j])


@functions
def test_plain_functions_are_numpys(name: str) -> None:
    """A body that is interpreted or debugged gets NumPy's values and types."""
    host = np.float32([1.25 if name == "acosh" else 0.75])
    found = getattr(lang, name)(host[0])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, reference(name)(host)[0], rtol=1e-6)


@functions
@precisions
def test_loops_become_vector_code(name: str, dtype: Any) -> None:
    """Sums and products of whole registers, in the argument's precision."""
    compiler = pytest.importorskip("aiodev._backends.cpu.compile.compiler")
    if kernel_code.is_interpreted():
        pytest.skip("NUMBA_DISABLE_JIT is set: nothing is compiled")
    code = np.dtype(dtype).str[1:]
    spec = KernelSpec(name, elementwise(name).py_func, 1, (f"A1{code}C", f"A1{code}C"), ())
    text = compiler.compile_result(spec).library.get_llvm_str()
    width = {"f4": "float", "f8": "double"}[code]
    assert re.search(rf"(fmul|fadd|fsub).* <\d+ x {width}>", text)


POWER_ERRORS = {np.float32: 0.51, np.float64: 1.6}


@precisions
def test_powers_are_within_the_stated_bounds(dtype: Any) -> None:
    """Bases of every exponent, whole exponents and others, and C's special values."""
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("the reference needs a long double of more than 53 bits")

    random = np.random.default_rng(9)
    bases = np.concatenate([every_exponent(dtype, 100 if dtype is np.float32 else 20), random.uniform(0, 3, 75_000)])
    exponents = random.uniform(-3, 3, len(bases))
    exponents[::5] = np.rint(exponents[::5])
    exponents[-50_000:] *= 20
    exponents[-25_000:] *= 10
    with np.errstate(divide="ignore", invalid="ignore"):  # to results that are nearly infinite or 0
        exponents[-12_500:] = random.uniform(-1, 1, 12_500) * np.log(np.finfo(dtype).max) / np.log(bases[-12_500:])
    found, exact = of_pairs(power_kernel(), np.power, bases.astype(dtype), exponents.astype(dtype))
    assert errors(found, exact).max() <= POWER_ERRORS[dtype]
    assert (np.signbit(found) == np.signbit(exact))[~np.isnan(exact)].all()


def turn(angle: Decimal) -> tuple[Decimal, Decimal]:
    """Cosine and sine: those of a millionth by the series, squared twenty times."""
    part = angle / 2**20
    cosine, sine, term = Decimal(1), Decimal(0), Decimal(1)
    for k in range(1, 24):
        term = term * part / k
        if k % 2:
            sine += term if k % 4 == 1 else -term
        else:
            cosine += term if k % 4 == 0 else -term
    for _ in range(20):
        cosine, sine = cosine * cosine - sine * sine, 2 * cosine * sine
    return cosine, sine


def exact_power(z: complex, w: complex) -> tuple[Decimal, Decimal]:
    """Both parts of z**w, to fifty digits."""
    with localcontext() as context:
        context.prec = 90
        x, y, c, d = (Decimal(float(part)) for part in (z.real, z.imag, w.real, w.imag))
        logarithm, angle = (x * x + y * y).ln() / 2, Decimal(float(np.arctan2(z.imag, z.real)))
        for _ in range(2):  # by Newton's method, whose error is the third power of what was left
            cosine, sine = turn(angle)
            angle += (y * cosine - x * sine) / (x * cosine + y * sine)
        size = (c * logarithm - d * angle).exp()
        cosine, sine = turn(d * logarithm + c * angle)
        return size * cosine, size * sine


def complex_pairs(dtype: Any, count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Bases and exponents, ordinary ones and such that a plain formula fails for."""
    random = np.random.default_rng(17)
    largest = float(np.log(np.finfo(dtype).max))

    def normal(scale: Any = 1.0) -> Any:
        return (random.standard_normal(count) + 1j * random.standard_normal(count)) * scale

    bases, spread = normal(5.0), 10 ** random.uniform(0, 2 if dtype is np.complex64 else 4, count)
    pairs = [
        (normal(10.0), normal(8.0)),
        (np.exp(1j * random.uniform(-np.pi, np.pi, count)) * (1 + 1 / 10 ** random.uniform(1, 16, count)), normal(spread)),
        (np.exp(random.uniform(-0.9, 0.9, count) * largest + 1j * random.uniform(-np.pi, np.pi, count)), normal(0.5)),
        (bases, random.uniform(-12, 12, count) + 0j),
        (bases, random.integers(-40, 41, count) + 0j),
        (bases.real + 0j, normal(4.0)),
        (bases, (random.uniform(-1, 1, count) * largest + 1j * spread) / np.log(bases)),
        (bases, (random.uniform(-1, 3, count) + largest + 1j * normal(9.0).real) / np.log(bases)),  # one part overflows
        (bases, (random.uniform(-9, 1, count) - largest + 1j * normal(9.0).real) / np.log(bases)),  # or is subnormal
    ]
    first, second = (np.concatenate(part) for part in zip(*pairs, strict=True))
    return first.astype(dtype), second.astype(dtype)


@functools.cache
def power_kernel() -> aiodev.Kernel:
    """A kernel that raises to powers."""

    @aiodev.kernel
    def power(i: int, x: Any, y: Any, out: Any) -> None:
        out[i] = lang.pow(x[i], y[i])

    return power


def complex_powers(bases: Any, exponents: Any) -> np.ndarray[Any, Any]:
    """Powers of complex numbers, compiled."""
    x, y = aiodev.asarray(bases, device="cpu"), aiodev.asarray(exponents, device="cpu")
    out = aiodev.empty(len(bases), bases.dtype, "cpu")
    power_kernel()[len(bases)](x, y, out)
    return out.numpy_blocking()


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_both_parts_of_complex_powers_are_within_the_stated_bound(dtype: Any) -> None:
    """Four units in the last place, and finite where the exact part is."""
    bases, exponents = complex_pairs(dtype, 100)
    found = complex_powers(bases, exponents)
    part = np.dtype(dtype).type(0).real.dtype
    largest = Decimal(float(np.finfo(part).max))
    for z, w, result in zip(bases.tolist(), exponents.tolist(), found, strict=True):
        for mine, exact in zip((result.real, result.imag), exact_power(z, w), strict=True):
            if abs(exact) > largest:
                assert abs(mine) >= np.finfo(part).max * part.type(1 - 4 * np.finfo(part).eps) and (mine > 0) == (exact > 0)
            else:
                unit = Decimal(float(np.spacing(abs(part.type(float(exact))))))
                assert np.isfinite(mine), (z, w)
                assert abs(Decimal(float(mine)) - exact) <= 4 * unit, (z, w)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_powers_that_are_exact(dtype: Any) -> None:
    """Whole powers of whole numbers, of real and of imaginary ones; and what stands for a limit."""
    whole = np.array([3 + 2j, -2, 2j, -1 - 1j, 1, 5 - 4j], dtype)
    for n in (0, 1, 2, 3, 4, 5, 9):
        expected = np.array([1] * len(whole), object)
        for _ in range(n):
            expected = [complex(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)
                        for a, b in zip(expected, whole.tolist(), strict=True)]  # fmt: skip
        np.testing.assert_array_equal(complex_powers(whole, np.full(len(whole), n, dtype)), np.array(expected, dtype))
    halves = complex_powers(np.array([-2, 2j, 0.5, 1 + 1j], dtype), np.full(4, -2, dtype))
    np.testing.assert_array_equal(halves, np.array([0.25, -0.25, 4, -0.5j]))
    inf, nan = np.inf, np.nan
    largest = np.finfo(dtype).max
    for base, exponent, power in (
        (0, 0, 1), (nan, 0, 1), (complex(inf, nan), 0, 1), (0, 2 + 1j, 0), (0, -1, complex(nan, nan)),
        (0, 1j, complex(nan, nan)), (1, 3 - 4j, 1), (complex(inf, 2), 1, complex(inf, 2)),
        (-inf, 2, complex(inf, nan)), (inf, 0.5, inf), (2, -inf, 0),
        (nan, 1, nan), (nan, 2 + 1j, complex(nan, nan)), (2, complex(nan, 1), complex(nan, nan)),
        (complex(largest, largest), 2, complex(0, inf)),
    ):  # fmt: skip
        found = complex_powers(np.array([base], dtype), np.array([exponent], dtype))
        np.testing.assert_array_equal(found, np.array([power], complex), f"{base} ** {exponent}")


def test_complex_powers_of_mixed_types() -> None:
    """As NumPy promotes them: single precision of what is single throughout."""
    for x, y in (("c8", "f4"), ("f4", "c8"), ("c8", "f8"), ("i4", "c16"), ("c16", "i8")):
        bases, exponents = np.array([2, 3], x), np.array([3, 2], y)
        out = aiodev.empty(2, np.complex128, "cpu")
        power_kernel()[2](aiodev.asarray(bases, device="cpu"), aiodev.asarray(exponents, device="cpu"), out)
        np.testing.assert_array_equal(out.numpy_blocking(), [8, 9])


@precisions
def test_angles_of_points_are_within_the_stated_bound(dtype: Any) -> None:
    """Points of every size and direction, on the axes, at infinity."""
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("the reference needs a long double of more than 53 bits")

    @aiodev.kernel
    def angle(i: int, y: Any, x: Any, out: Any) -> None:
        out[i] = lang.atan2(y[i], x[i])

    random = np.random.default_rng(9)
    up = np.concatenate([every_exponent(dtype, 20), random.standard_normal(100_000).astype(dtype)])
    across = random.permutation(up)
    across[::2] = up[::2] * random.uniform(-1, 1, len(across[::2])).astype(dtype)  # at most as large
    found, exact = of_pairs(angle, np.arctan2, up, across)
    assert errors(found, exact).max() <= 1.7
    assert (np.signbit(found) == np.signbit(exact))[~np.isnan(exact)].all()


@precisions
def test_sizes_of_points_are_within_the_stated_bound(dtype: Any) -> None:
    """Points of every size and direction, those whose squares overflow or vanish, at infinity; and as complex numbers."""
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("the reference needs a long double of more than 53 bits")

    @aiodev.kernel
    def size(i: int, x: Any, y: Any, out: Any) -> None:
        out[i] = lang.hypot(x[i], y[i])

    @aiodev.kernel
    def modulus(i: int, z: Any, out: Any) -> None:
        out[i] = lang.abs(z[i])

    random = np.random.default_rng(9)
    across = np.concatenate([every_exponent(dtype, 20), random.standard_normal(100_000).astype(dtype)])
    up = random.permutation(across)
    up[::2] = across[::2] * random.uniform(-1, 1, len(up[::2])).astype(dtype)  # at most as large
    found, exact = of_pairs(size, np.hypot, across, up)
    assert errors(found, exact).max() <= (0.51 if dtype is np.float32 else 1.1)
    z = across + 1j * up if dtype is np.float64 else (across.astype("c8") + np.complex64(1j) * up)
    out = aiodev.empty(len(z), dtype, "cpu")
    modulus[len(z)](aiodev.asarray(z, device="cpu"), out)
    np.testing.assert_array_equal(out.numpy_blocking(), found[: len(z)])


@pytest.mark.parametrize("name", ["b1", "i1", "u1", "i2", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("other", ["f2", "f4", "i8"])
def test_sizes_of_every_type_are_those_of_numpy(name: str, other: str) -> None:
    dtype = np.dtype(name)

    @aiodev.kernel
    def size(i: int, x: Any, y: Any, z: Any, sides: Any, absolutes: Any) -> None:
        sides[i] = lang.hypot(x[i], y[i])
        absolutes[i] = lang.abs(z[i])

    z = (np.arange(-9, 9) if dtype.kind in "ifc" else np.arange(18)).astype(dtype)
    if dtype.kind == "c":
        z = z + dtype.type(1j) * z[::-1]
    x, y = np.ascontiguousarray(z.real), np.full(z.shape, 2, other)
    with np.errstate(all="ignore"):
        sides, absolutes = np.hypot(x, y), np.absolute(z)
    found = aiodev.empty(len(z), sides.dtype, "cpu"), aiodev.empty(len(z), absolutes.dtype, "cpu")
    size[len(z)](*(aiodev.asarray(given, device="cpu") for given in (x, y, z)), *found)
    for ours, exact in zip(found, (sides, absolutes), strict=True):
        error = 2 * np.finfo(exact.dtype).eps if exact.dtype.kind == "f" else 0
        np.testing.assert_allclose(ours.numpy_blocking(), exact, error)


def of_pairs(
    kernel: aiodev.Kernel, function: Any, first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A function of two arrays, and of every two special values: as it is compiled, and in extended precision."""
    special = np.array([0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 1e30, -1e30], first.dtype)
    x = np.concatenate([first, np.repeat(special, len(special))])
    y = np.concatenate([second, np.tile(special, len(special))])
    out = aiodev.empty(len(x), x.dtype, "cpu")
    kernel[len(x)](aiodev.asarray(x, device="cpu"), aiodev.asarray(y, device="cpu"), out)
    with np.errstate(all="ignore"):
        return out.numpy_blocking(), function(x.astype(np.longdouble), y.astype(np.longdouble))

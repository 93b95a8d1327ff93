"""Division by zero in kernels on the CPU: of floats and complex numbers as NumPy has it, of integers an error."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import pytest
from kernel_entry import needs_compiler, run

from aiodev._core.errors import KernelError

PARTS = (0.0, -0.0, 1.0, -2.5, 3e30, 1e-30, math.inf, -math.inf, math.nan)


def quotient(i: int, x: Any, y: Any, out: Any) -> None:
    out[i] = x[i] / y[i]


def changed_quotient(i: int, x: Any, y: Any, out: Any) -> None:
    value = x[i]
    value /= y[i]
    out[i] = value


def reciprocal(i: int, x: Any, n: Any, out: Any) -> None:
    out[i] = x[i] ** -1


def inverse_cube(i: int, x: Any, n: Any, out: Any) -> None:
    out[i] = x[i] ** -3


def power(i: int, x: Any, n: Any, out: Any) -> None:
    out[i] = x[i] ** n[i]


def changed_power(i: int, x: Any, n: Any, out: Any) -> None:
    value = x[i]
    value **= n[i]
    out[i] = value


def power_by_name(i: int, x: Any, n: Any, out: Any) -> None:
    out[i] = pow(x[i], n[i])


def power_of_math(i: int, x: Any, n: Any, out: Any) -> None:
    out[i] = math.pow(x[i], n[i])


@needs_compiler
@pytest.mark.parametrize("body", [quotient, changed_quotient])
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_quotients_of_complex_numbers(body: Any, dtype: str) -> None:
    """All parts, and their signs, are those of NumPy's quotients: of zeros, infinities and NaN, too."""
    numbers = np.array([complex(a, b) for a in PARTS for b in PARTS], dtype)
    x, y = np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))
    out = np.zeros_like(x)
    run(body, len(x), x, y, out)
    with np.errstate(all="ignore"):
        expected = x / y
    for got, wanted in ((out.real, expected.real), (out.imag, expected.imag)):
        np.testing.assert_allclose(got, wanted, rtol=4 * np.finfo(got.dtype).eps, atol=0)
        is_number = ~np.isnan(wanted)
        assert (np.signbit(got) == np.signbit(wanted))[is_number].all()


@needs_compiler
def test_quotients_of_tiny_complex_numbers() -> None:
    """They neither overflow nor underflow on the way, as NumPy's do."""
    x, out = np.array([1e-310 + 1e-310j, 1e300 - 1e300j]), np.zeros(2, "c16")
    run(quotient, 2, x, x, out)
    np.testing.assert_allclose(out, [1, 1], rtol=1e-12)


@needs_compiler
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("body", "of"),
    [
        (reciprocal, "i8"),
        (inverse_cube, "i8"),
        (power, "i1"),
        (power, "i4"),
        (power, "i8"),
        (changed_power, "i8"),
        (power_by_name, "i8"),
        (power_of_math, "i8"),
    ],
)
def test_powers_of_zero(body: Any, of: str, dtype: str) -> None:
    """A negative power of a zero is infinite, with the sign that IEEE has."""
    exponent = -3 if body is inverse_cube else -1
    x, out = np.array([0.0, -0.0, 2.0, -math.inf], dtype), np.zeros(4, dtype)
    run(body, 4, x, np.full(4, exponent, of), out)
    assert out[:3].tolist() == [math.inf, -math.inf, 2.0**exponent]
    assert out[3] == 0
    assert np.signbit(out[3])


@needs_compiler
@pytest.mark.parametrize("body", [reciprocal, power, changed_power, power_by_name])
def test_powers_of_the_integer_zero(body: Any) -> None:
    """No integer is infinite: a negative power of 0 raises, as a quotient does; of others what is left of the fraction."""
    x, n, out = np.array([1, -1, 2, 0]), np.full(4, -1), np.zeros(4, "i8")
    run(body, 3, x, n, out)
    assert out.tolist() == [1, -1, 0, 0]
    with pytest.raises(KernelError) as caught:
        run(body, 4, x, n, out)
    assert type(caught.value.__cause__) is ZeroDivisionError


@needs_compiler
def test_a_program_s_functions_stay_python_s() -> None:
    """What a program jits by itself divides as numba has it."""

    @numba.njit
    def power(value: float) -> float:
        return value**-1

    @numba.njit
    def quotient(value: complex) -> complex:
        return 1 / value

    with pytest.raises(ZeroDivisionError):
        power(0.0)
    with pytest.raises(ZeroDivisionError):
        quotient(0j)

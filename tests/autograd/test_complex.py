"""Gradients of complex numbers against central differences of both parts, to the second order, and against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from selection import some

import aiodev
import aiodev.kernels as kernels
from aiodev import autograd
from aiodev.kernels import fft, linalg

pytestmark = pytest.mark.anyio


def on_device(values: Any) -> Any:
    return aiodev.asarray(np.asarray(values), device="cpu")


def values_of(kinds: str, shapes: Any, seed: int = 3) -> list[Any]:
    """Complex (``c``) and real (``r``) arrays of shapes."""
    random = np.random.default_rng(seed)
    drawn = [(kind, *random.standard_normal((2, *shape))) for kind, shape in zip(kinds, shapes, strict=True)]
    return [real + 1j * other if kind == "c" else real for kind, real, other in drawn]


def definite(x: Any) -> Any:
    """Hermitian positive definite matrices."""
    return kernels.matmul(x, kernels.conj(x.mT)) + 3.0 * kernels.eye(x.shape[-1], device="cpu")


def without_phases(u: Any, s: Any, vh: Any) -> Any:
    """Singular values and vectors, but for the phases of these, which are free."""
    return s, kernels.matmul(u * s[..., None, :], vh), kernels.abs(u), kernels.abs(vh)


def thin(x: Any) -> Any:
    return without_phases(*linalg.svd(x, full_matrices=False))


ROWS = on_device([0, 2, 2])
Case = tuple[Callable[..., Any], str, list[tuple[int, ...]]]
#: By name: a function, the kinds of its operands, and their shapes.
CASES: dict[str, Case] = {
    "multiply, broadcast": (kernels.multiply, "cc", [(2, 3), (3,)]),
    "multiply a real number": (kernels.multiply, "rc", [(2, 3), (3,)]),
    "abs": (kernels.abs, "c", [(3,)]),
    "matmul": (kernels.matmul, "cc", [(2, 3), (3, 2)]),
    "fft": (fft.fft, "c", [(5,)]),
    "rfft": (fft.rfft, "r", [(5,)]),
    "irfft": (fft.irfft, "c", [(4,)]),
    "divide": (kernels.divide, "cc", [(2,), (2,)]),
    "pow": (kernels.pow, "cc", [(3,), (3,)]),
    "conj": (lambda x: kernels.conj(x) * x * x, "c", [(3,)]),
    "real": (kernels.real, "c", [(3,)]),
    "imag": (lambda x: kernels.imag(x) ** 2, "c", [(3,)]),
    "sign": (kernels.sign, "c", [(3,)]),
    "astype": (lambda x: kernels.astype(x, "complex128") * 1j, "r", [(3,)]),
    "sum": (lambda x: kernels.sum(x, axis=0), "c", [(2, 3)]),
    "mean": (kernels.mean, "c", [(2, 3)]),
    "prod": (kernels.prod, "c", [(3,)]),
    "diff": (lambda x: kernels.diff(x, axis=0), "c", [(3, 2)]),
    "var": (kernels.var, "c", [(3,)]),
    "std": (kernels.std, "c", [(3,)]),
    "cumulative_sum": (kernels.cumulative_sum, "c", [(3,)]),
    "cumulative_prod": (kernels.cumulative_prod, "c", [(3,)]),
    "take": (lambda x: kernels.take(x, ROWS, axis=0), "c", [(3, 2)]),
    "getitem": (lambda x: x[::2], "c", [(5,)]),
    "advanced index": (lambda x: x[[0, 0, 1]], "c", [(3,)]),
    "where": (lambda x, y: kernels.where(on_device([True, False]), x, y), "cc", [(2,), (2,)]),
    "concat": (lambda x, y: kernels.concat([x, y]), "cr", [(2,), (2,)]),
    "stack": (lambda x, y: kernels.stack([x, y]), "cc", [(2,), (2,)]),
    "pad": (lambda x: kernels.pad(x, 1, "reflect"), "c", [(3,)]),
    "repeat": (lambda x: kernels.repeat(x, 2), "c", [(3,)]),
    "vecdot": (kernels.vecdot, "cc", [(2, 3), (2, 3)]),
    "tensordot": (lambda x, y: kernels.tensordot(x, y, axes=1), "cc", [(2, 3), (3, 2)]),
    "cross": (linalg.cross, "cc", [(3,), (3,)]),
    "trace": (linalg.trace, "c", [(3, 3)]),
    "outer": (linalg.outer, "cc", [(2,), (3,)]),
    "inv": (linalg.inv, "c", [(3, 3)]),
    "solve": (linalg.solve, "cc", [(3, 3), (3, 2)]),
    "det": (linalg.det, "c", [(3, 3)]),
    "slogdet": (linalg.slogdet, "c", [(3, 3)]),
    "matrix_power": (lambda x: linalg.matrix_power(x, 3), "c", [(2, 2)]),
    "vector_norm": (linalg.vector_norm, "c", [(3,)]),
    "vector_norm, first": (lambda x: linalg.vector_norm(x, ord=1), "c", [(3,)]),
    "vector_norm, third": (lambda x: linalg.vector_norm(x, ord=3), "c", [(3,)]),
    "vector_norm, largest": (lambda x: linalg.vector_norm(x, ord=np.inf), "c", [(3,)]),
    "cholesky": (lambda x: linalg.cholesky(definite(x)), "c", [(3, 3)]),
    "cholesky, upper": (lambda x: linalg.cholesky(definite(x), upper=True), "c", [(3, 3)]),
    "eigvalsh": (lambda x: linalg.eigvalsh(definite(x)), "c", [(3, 3)]),
    "eigh": (lambda x: kernels.abs(linalg.eigh(definite(x))[1]), "c", [(3, 3)]),
    "svd": (thin, "c", [(3, 3)]),
    "svd of tall matrices": (thin, "c", [(4, 2)]),
    "svd of wide matrices": (thin, "c", [(2, 4)]),
    "svdvals": (linalg.svdvals, "c", [(3, 2)]),
    "qr": (linalg.qr, "c", [(3, 3)]),
    "qr of tall matrices": (linalg.qr, "c", [(4, 2)]),
    "qr of wide matrices": (linalg.qr, "c", [(2, 4)]),
    "pinv of tall matrices": (linalg.pinv, "c", [(3, 2)]),
    "pinv of wide matrices": (linalg.pinv, "c", [(2, 3)]),
    "fft of real numbers": (fft.fft, "r", [(5,)]),
    "fft, longer": (lambda x: fft.fft(x, n=7, axis=0, norm="ortho"), "c", [(5, 2)]),
    "fft, shorter": (lambda x: fft.fft(x, n=3, axis=0), "c", [(5, 2)]),
    "ifft": (lambda x: fft.ifft(x, norm="forward"), "c", [(4,)]),
    "rfft, longer": (lambda x: fft.rfft(x, n=6, axis=0), "r", [(4, 2)]),
    "rfft, shorter": (lambda x: fft.rfft(x, n=3), "r", [(5,)]),
    "irfft, odd": (lambda x: fft.irfft(x, n=5, norm="ortho"), "c", [(4,)]),
    "irfft, longer": (lambda x: fft.irfft(x, n=9), "c", [(3,)]),
    "irfft of real numbers": (fft.irfft, "r", [(4,)]),
    "hfft": (fft.hfft, "c", [(4,)]),
    "hfft, odd": (lambda x: fft.hfft(x, n=5, norm="ortho"), "c", [(4,)]),
    "ihfft": (fft.ihfft, "r", [(5,)]),
    "ihfft, longer": (lambda x: fft.ihfft(x, n=6, norm="forward"), "r", [(5,)]),
    "fftn": (fft.fftn, "c", [(2, 3)]),
    "fftn of lengths": (lambda x: fft.fftn(x, s=(3, 2), norm="ortho"), "c", [(2, 3)]),
    "ifftn": (lambda x: fft.ifftn(x, axes=(0,)), "c", [(2, 3)]),
    "rfftn": (fft.rfftn, "r", [(2, 4)]),
    "rfftn of lengths": (lambda x: fft.rfftn(x, s=(3, 5), axes=(1, 0)), "r", [(2, 4)]),
    "irfftn": (fft.irfftn, "c", [(2, 3)]),
    "irfftn of lengths": (lambda x: fft.irfftn(x, s=(3, 5), norm="ortho"), "c", [(2, 3)]),
    "fftshift": (fft.fftshift, "c", [(4,)]),
    "ifftshift": (fft.ifftshift, "c", [(5,)]),
}  # fmt: skip
HOLOMORPHIC = [
    "sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1", "log", "log10", "log1p", "log2", "sqrt", "square",
    "reciprocal", "negative", "asin", "acos", "atan", "asinh", "acosh", "atanh",
]  # fmt: skip
CASES |= {name: (getattr(kernels, name), "c", [(3,)]) for name in HOLOMORPHIC}


def leaves_of(name: str) -> tuple[Any, list[Any]]:
    function, kinds, shapes = CASES[name]
    return function, [autograd.Variable(on_device(value)) for value in values_of(kinds, shapes)]


@pytest.mark.parametrize("name", some(list(CASES), 7))
async def test_gradients_of_complex_numbers(name: str) -> None:
    """They say in which direction the real part of what is weighted grows."""
    function, leaves = leaves_of(name)
    await autograd.gradcheck(function, leaves)


@pytest.mark.parametrize("name", some(list(CASES), 2))
async def test_second_gradients_of_complex_numbers(name: str) -> None:
    """And so do the gradients of gradients."""
    function, leaves = leaves_of(name)
    await autograd.gradgradcheck(function, leaves)


#: Of these PyTorch has the same, by the same name or another one.
TORCH: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "multiply, broadcast": lambda torch: torch.multiply,
    "abs": lambda torch: torch.abs,
    "matmul": lambda torch: torch.matmul,
    "fft": lambda torch: torch.fft.fft,
    "rfft": lambda torch: torch.fft.rfft,
    "irfft": lambda torch: torch.fft.irfft,
    "sign": lambda torch: torch.sgn,
    "imag": lambda torch: lambda x: torch.imag(x) ** 2,
    "inv": lambda torch: torch.linalg.inv,
    "det": lambda torch: torch.linalg.det,
    "svdvals": lambda torch: torch.linalg.svdvals,
    "pinv of wide matrices": lambda torch: torch.linalg.pinv,
    "rfftn": lambda torch: torch.fft.rfftn,
    "irfftn": lambda torch: torch.fft.irfftn,
    "hfft": lambda torch: torch.fft.hfft,
    "pow": lambda torch: torch.pow,
    "tan": lambda torch: torch.tan,
}


@pytest.mark.parametrize("name", TORCH)
async def test_gradients_are_those_of_pytorch(name: str) -> None:
    """In its convention: of the conjugate, not of the number."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    function, kinds, shapes = CASES[name]
    values = values_of(kinds, shapes)
    ours = [autograd.Variable(on_device(own)) for own in values]
    theirs = [torch.tensor(own, requires_grad=True) for own in values]
    result, expected = function(*ours), TORCH[name](torch)(*theirs)
    (direction,) = values_of("c" if result.dtype.kind == "c" else "r", [result.shape], 7)
    await autograd.backward(result, on_device(direction))
    expected.backward(torch.tensor(direction))
    for own, other in zip(ours, theirs, strict=True):
        assert np.allclose(await own.grad.numpy(), other.grad.resolve_conj().numpy(), rtol=1e-9, atol=1e-9)


async def test_a_complex_loss_needs_a_gradient() -> None:
    """What decreases is a real number."""
    x = autograd.Variable(on_device(1 + 2j))
    with pytest.raises(ValueError, match="what decreases is a real number"):
        await autograd.backward(x * x)


async def test_operations_that_say_nothing_of_complex_numbers_are_refused() -> None:
    """Also where they were recorded with real numbers before, by a program that knows the call."""

    @aiodev.kernel
    def copy_elements(i, x, out):
        out[i] = x[i]

    @aiodev.operation(reads=["x"], writes="out")
    def copied(call, x, /, *, out=None):
        out = call.out(x.shape, x.dtype)
        call.launch(copy_elements, x.size, x, out)
        return out

    copied.operation.gradient(x=lambda g: g)
    real, number = autograd.Variable(on_device([1.0, 2.0])), autograd.Variable(on_device([1j, 2.0]))
    for _ in range(4):
        await copied(real).sum().backward()
    for _ in range(2):
        with pytest.raises(NotImplementedError, match="copied: no gradient is declared for complex numbers"):
            copied(number)
    copied.operation.forget()
    copied.operation.holomorphic = True
    await autograd.gradcheck(copied, [number])


@pytest.mark.parametrize("exponent", [0, 1, 2, 3])
async def test_powers_of_zero(exponent: int) -> None:
    """Of whole exponents the gradient at 0 is that of the polynomial, and so are its own; PyTorch has NaN for some."""
    x = autograd.Variable(on_device([0j, 1 + 2j]))
    power = autograd.Variable(on_device(np.full(2, exponent + 0j)))
    ones = on_device(np.ones(2, "c16"))
    found = await autograd.grad(x**power, [x, power], ones, create_graph=True)
    (again,) = await autograd.grad(found[0], [x], ones)
    values = np.array([0j, 1 + 2j])
    slope, bend = (np.polyder([1] + [0] * exponent, times) for times in (1, 2))
    np.testing.assert_allclose(await found[0].numpy(), np.conj(np.polyval(slope, values)), 1e-12, 1e-12)
    np.testing.assert_allclose(await again.numpy(), np.conj(np.polyval(bend, values)), 1e-12, 1e-12)
    expected = np.conj([0, values[1] ** exponent * np.log(values[1])])
    np.testing.assert_allclose(await found[1].numpy(), expected, 1e-12, 1e-12)


TAKING: dict[str, Callable[[Any], Any]] = {
    "take": lambda x: kernels.take(x, on_device([0, 1, 1]), axis=0),
    "getitem": lambda x: x[on_device([0, 1, 1])],
    "pad": lambda x: kernels.pad(x, (0, 1), "edge"),
}


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", TAKING)
async def test_infinite_parts_stay_with_their_numbers(name: str, dtype: str) -> None:
    """Both parts are added up by themselves, and nothing is multiplied."""
    own = autograd.Variable(on_device(np.ones(2, dtype)))
    given = np.array([complex(2, np.inf), complex(-np.inf, 1), complex(1, 3)], dtype)
    await TAKING[name](own).backward(on_device(given))
    found = await own.grad.numpy()
    assert found.dtype == dtype and found.tolist() == [complex(2, np.inf), complex(-np.inf, 4)]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
async def test_an_infinite_gradient_of_an_imaginary_part(dtype: str) -> None:
    """It has no real part, and the gradient of it is the imaginary part of what comes."""
    own = autograd.Variable(on_device(np.ones(2, dtype)))
    part = kernels.imag(own)
    given = autograd.Variable(on_device(np.array([-np.inf, 2]).astype(part.dtype)))
    (found,) = await autograd.grad(part, [own], given, create_graph=True)
    assert (await found.numpy()).tolist() == [complex(0, -np.inf), 2j]
    (again,) = await autograd.grad(found, [given], on_device(np.array([3 + 4j, 5 - 6j], dtype)))
    assert again.dtype == part.dtype and await again.tolist() == [4, -6]

"""Gradients against central differences."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aiodev._array.array import Array
from aiodev._array.creation import asarray
from aiodev._autograd.backward import grad
from aiodev._autograd.variable import Variable, plain_of
from aiodev._core.arguments import function as callable_of, integer, items, message, number, refusal

__all__ = ["gradcheck", "gradgradcheck"]

_Host = np.ndarray[Any, Any]


async def gradcheck(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    seed: int = 0,
) -> None:
    """Compare the gradients of a function with central differences, in the direction of a random gradient of its results.

    Args:
        function: of the inputs, to a variable or a tuple of them; or a coroutine function.
        inputs: arrays; gradients are compared of variables that require one. In double precision, as a rule.
        eps: by how much an element is changed.
        atol: how much of a difference is none, absolutely.
        rtol: the same, of the central difference.
        seed: of the random gradient.

    Raises:
        AssertionError: a gradient differs, or is missing where the central difference is not 0.
        TypeError: ``function`` is none or gives something else than arrays, no input is a variable that requires a gradient,
            or a number is none.
        ValueError: ``eps`` is not above 0, or ``seed`` is below.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> from aiodev import autograd
        >>> async def main():
        ...     x = autograd.Variable(aiodev.asarray([0.5, -1.5], device="cpu"))
        ...     await autograd.gradcheck(aiodev.kernels.sin, [x])
        >>> import asyncio; asyncio.run(main())
    """
    inputs = _checked("gradcheck", function, inputs, eps, atol, rtol, seed)
    checked = _differentiated(inputs)
    leaves = [Variable(one.detach()) if place in checked else one for place, one in enumerate(inputs)]
    results = await _results(function, leaves)
    reached = [one for one in results if isinstance(one, Variable) and one.requires_grad]
    random = np.random.default_rng(seed)
    directions = [_drawn(random, one) for one in results]
    gradients: tuple[Array | None, ...] = (None,) * len(checked)
    if reached:
        grads = [
            asarray(direction.astype(one.dtype), device=one.device)
            for one, direction in zip(results, directions, strict=True)
            if isinstance(one, Variable) and one.requires_grad
        ]
        gradients = await grad(reached, [leaves[place] for place in checked], grads, allow_unused=True)
    for place, gradient in zip(checked, gradients, strict=True):
        expected = await _differences(function, inputs, place, directions, eps)
        got = np.zeros_like(expected) if gradient is None else await gradient.numpy()
        if not np.allclose(got, expected, atol=atol, rtol=rtol):
            raise AssertionError(
                f"gradcheck: the gradient of input {place} is\n{got}\nand central differences give\n{expected}"
            )


async def gradgradcheck(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    seed: int = 0,
) -> None:
    """Compare the gradients of gradients, with respect to the inputs and the results' gradients; see :func:`gradcheck`.

    Raises:
        AssertionError: one differs.
        TypeError: as :func:`gradcheck`.
        ValueError: as :func:`gradcheck`.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> from aiodev import autograd
        >>> async def main():
        ...     x = autograd.Variable(aiodev.asarray([0.5, -1.5], device="cpu"))
        ...     await autograd.gradgradcheck(aiodev.kernels.exp, [x])
        >>> import asyncio; asyncio.run(main())
    """
    inputs = _checked("gradgradcheck", function, inputs, eps, atol, rtol, seed)
    checked = _differentiated(inputs)
    results = [one for one in await _results(function, inputs) if isinstance(one, Variable) and one.requires_grad]
    random = np.random.default_rng(seed)
    given = [Variable(asarray(_drawn(random, one).astype(one.dtype), device=one.device)) for one in results]

    async def first(*arguments: Any) -> Any:
        own, gradients = arguments[: len(inputs)], arguments[len(inputs) :]
        computed = [one for one in await _results(function, own) if isinstance(one, Variable) and one.requires_grad]
        wanted = [own[place] for place in checked]
        seen = [one if isinstance(one, Variable) else Variable(one) for one in wanted]
        if any(one is not other for one, other in zip(wanted, seen, strict=True)) or not computed:
            changed = list(own)
            for place, one in zip(checked, seen, strict=True):
                changed[place] = one
            computed = [one for one in await _results(function, changed) if isinstance(one, Variable)]
        grads = await grad(computed, seen, list(gradients), create_graph=True, allow_unused=True)
        return tuple(one for one in grads if one is not None)

    await gradcheck(first, [*inputs, *given], eps=eps, atol=atol, rtol=rtol, seed=seed + 1)


def _differentiated(inputs: Sequence[Any]) -> list[int]:
    """Which inputs require a gradient, by their places."""
    return [place for place, one in enumerate(inputs) if isinstance(one, Variable) and one.requires_grad]


def _checked(
    name: str, function: Callable[..., Any], inputs: Any, eps: float, atol: float, rtol: float, seed: int
) -> list[Any]:
    """The inputs, with all arguments checked."""
    callable_of(name, "function", function)
    given = items(name, "inputs", inputs, "a sequence of arrays")
    if not _differentiated(given):
        raise TypeError(f"{name}: inputs: expected a variable that requires a gradient among them, got none")
    if not number(name, "eps", eps) > 0:
        raise ValueError(message(name, "eps", "a number above 0", eps))
    number(name, "atol", atol)
    number(name, "rtol", rtol)
    integer(name, "seed", seed, 0)
    return given


async def _results(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
    returned = function(*inputs)
    if inspect.isawaitable(returned):
        returned = await returned
    results = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
    for one in results:
        if not isinstance(one, Array):
            raise refusal("gradcheck", "function", "one that gives an array, or several", one)
    return results


async def _differences(
    function: Callable[..., Any], inputs: Sequence[Any], place: int, directions: Sequence[_Host], eps: float
) -> _Host:
    """The derivative of the results, along the directions, with respect to each element of an input.

    Of a complex element it is complex: with respect to its real part, and with respect to its imaginary one.
    """
    is_complex = inputs[place].dtype.kind == "c"
    host: _Host = (await inputs[place].numpy()).astype(np.complex128 if is_complex else np.float64)
    expected = np.zeros_like(host)
    for index in np.ndindex(host.shape):
        for unit in (1, 1j) if is_complex else (1,):
            sides = []
            for step in (eps, -eps):
                moved = host.copy()
                moved[index] += step * unit
                arguments = [plain_of(one) for one in inputs]
                arguments[place] = asarray(moved.astype(inputs[place].dtype), device=inputs[place].device)
                sides.append(await _results(function, arguments))
            for after, before, direction in zip(*sides, directions, strict=True):
                kind = np.complex128 if after.dtype.kind == "c" else np.float64
                change = (await after.numpy()).astype(kind) - (await before.numpy())
                expected[index] += unit * float((change * direction.conj()).sum().real) / (2 * eps)
    return expected


def _drawn(random: np.random.Generator, like: Any) -> _Host:
    """A random gradient."""
    drawn: _Host = random.standard_normal(like.shape)
    return drawn + 1j * random.standard_normal(like.shape) if like.dtype.kind == "c" else drawn

"""Derivatives of functions: of plain arrays, to plain arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from aiodev._array.array import Array
from aiodev._array.computing import kernels
from aiodev._array.creation import ones, zeros
from aiodev._autograd.backward import grad
from aiodev._autograd.variable import Variable, argument_of, is_differentiable, plain_of
from aiodev._core.arguments import function as callable_of, instance, integer, items
from aiodev._core.waiting.reactor import others_first

__all__ = ["hessian", "jvp", "vjp"]


async def vjp(
    function: Callable[..., Any], *primals: Array
) -> tuple[Any, Callable[..., Coroutine[Any, Any, tuple[Array, ...]]]]:
    """What a function computes, and how a gradient of that goes back: its vector-Jacobian product.

    The second is a coroutine function, of a gradient for each of the results, that gives one for each argument. It may be
    called any number of times. All results are plain arrays.

    Args:
        function: of arrays, to an array or a tuple of them; or a coroutine function.
        primals: its arguments, which need not be variables.

    Raises:
        TypeError: ``function`` is none or gives something else, or an argument is no array.
        ValueError: a gradient has not the form of its result, or there is no argument.
        RuntimeError: no gradient reaches a result; or an argument depends on variables, as for :func:`value_and_grad`.

    Example:
        >>> import aiodev
        >>> from aiodev import autograd
        >>> async def main():
        ...     x, y = aiodev.asarray([1.0, 2.0], device="cpu"), aiodev.asarray([3.0, 4.0], device="cpu")
        ...     product, back = await autograd.vjp(lambda x, y: x * y, x, y)
        ...     of_x, of_y = await back(aiodev.asarray([1.0, 10.0], device="cpu"))
        ...     return await of_x.tolist(), await of_y.tolist()
        >>> import asyncio; asyncio.run(main())
        ([3.0, 40.0], [1.0, 20.0])
    """
    leaves = _leaves("vjp", primals)
    results, shown = await _called("vjp", function, leaves)

    async def back(*grads: Array) -> tuple[Array, ...]:
        gradients = await grad(results, leaves, grads, retain_graph=True, allow_unused=True)
        return tuple(_or_zeros(one, leaf) for one, leaf in zip(gradients, leaves, strict=True))

    return shown, back


async def jvp(function: Callable[..., Any], primals: Sequence[Array], tangents: Sequence[Array]) -> tuple[Any, Any]:
    """What a function computes, and by how much that changes in a direction: its Jacobian-vector product.

    It takes two backward passes: how a gradient goes back is linear in it, and the gradient of that goes forward. Both results
    are of plain arrays, and tuples where the function gives a tuple.

    Args:
        function: of arrays, to an array or a tuple of them; or a coroutine function.
        primals: its arguments, which need not be variables.
        tangents: the direction: an array for each, of its shape and dtype.

    Raises:
        TypeError: ``function`` is none or gives something else, or an argument is no array.
        ValueError: there are not as many tangents, or one has another form, or there is none.
        RuntimeError: no gradient reaches a result; or an argument depends on variables, as for :func:`value_and_grad`.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> from aiodev import autograd
        >>> async def main():
        ...     x, direction = aiodev.asarray([1.0, 2.0], device="cpu"), aiodev.asarray([1.0, 0.5], device="cpu")
        ...     value, change = await autograd.jvp(lambda x: x ** 2, [x], [direction])
        ...     return await value.tolist(), await change.tolist()
        >>> import asyncio; asyncio.run(main())
        ([1.0, 4.0], [2.0, 2.0])
    """
    leaves = _leaves("jvp", items("jvp", "primals", primals, "a sequence of arrays"))
    given = items("jvp", "tangents", tangents, "a sequence of arrays")
    if len(given) != len(leaves):
        raise ValueError(f"jvp: {len(given)} tangents for {len(leaves)} primals")
    for place, (leaf, own) in enumerate(zip(leaves, given, strict=True)):
        instance("jvp", f"tangents[{place}]", own, Array, "an array")
        if own.shape != leaf.shape or own.dtype != leaf.dtype or own.device is not leaf.device:
            wanted = leaf._plain._describe()
            raise ValueError(f"jvp: tangents[{place}]: expected one like an {wanted}, got an {own._describe()}")
    results, shown = await _called("jvp", function, leaves)
    weights = [Variable(ones(one.shape, one.dtype, one.device)) for one in results]
    back = await grad(results, leaves, weights, create_graph=True, allow_unused=True)
    reached = [place for place, one in enumerate(back) if isinstance(one, Variable) and one.requires_grad]
    changes: Sequence[Array | None] = [None] * len(weights)
    if reached:
        directions = [plain_of(given[place]) for place in reached]
        changes = await grad([back[place] for place in reached], weights, directions, allow_unused=True)  # type: ignore[misc]
    products = tuple(_or_zeros(change, one) for change, one in zip(changes, results, strict=True))
    return shown, products if isinstance(shown, tuple) else products[0]


def hessian(function: Callable[..., Any], argnum: int = 0) -> Callable[..., Coroutine[Any, Any, Array]]:
    """A coroutine function that gives the second derivatives of a function with respect to an argument.

    Of an argument of the shape ``s`` they have the shape ``s + s``. It takes a backward pass for the gradient, and one for each
    of its elements.

    Args:
        function: of arrays, to one of a single element; or a coroutine function.
        argnum: which of its arguments.

    Raises:
        TypeError: ``function`` is none, ``argnum`` is no integer, or an argument is no array.
        ValueError: the result has several elements, or there is no such argument.
        RuntimeError: the argument depends on variables, as for :func:`value_and_grad`.

    Example:
        >>> import aiodev
        >>> from aiodev import autograd
        >>> second = autograd.hessian(lambda x: x[0] ** 2 * x[1])
        >>> async def main():
        ...     return await (await second(aiodev.asarray([1.0, 3.0], device="cpu"))).tolist()
        >>> import asyncio; asyncio.run(main())
        [[6.0, 2.0], [2.0, 0.0]]
    """
    callable_of("hessian", "function", function)
    place = integer("hessian", "argnum", argnum)

    async def compute(*arguments: Any) -> Array:
        if not -len(arguments) <= place < len(arguments):
            raise ValueError(f"hessian: argnum {place}: expected a place among {len(arguments)} arguments")
        given = list(arguments)
        (leaf,) = _leaves("hessian", [given[place]])
        given[place] = leaf
        (result,), _ = await _called("hessian", function, given)
        rows: list[Array] = []
        (first,) = await grad(result, leaf, create_graph=True, allow_unused=True)
        if isinstance(first, Variable) and first.requires_grad:
            flat = first.reshape(first.size)
            for element in range(first.size):
                (row,) = await grad(flat[element], leaf, retain_graph=True, allow_unused=True)
                rows.append(_or_zeros(row, leaf))
        if not rows:
            return zeros(leaf.shape + leaf.shape, leaf.dtype, leaf.device)
        stacked: Array = kernels.stack(rows)
        return stacked.reshape(leaf.shape + leaf.shape)

    return compute


def _leaves(function: str, primals: Sequence[Any]) -> list[Variable]:
    """Variables of arrays.

    Raises:
        TypeError: something is no array, or has no gradients.
        ValueError: there is none.
    """
    if not primals:
        raise ValueError(f"{function}: primals: expected an array or more, got none")
    for place, one in enumerate(primals):
        name = f"primals[{place}]"
        if not is_differentiable(instance(function, name, one, Array, "an array")._form):
            raise TypeError(f"{function}: {name}: expected numbers of floating point, or complex ones, got {one.dtype}")
    return [argument_of(function, f"primals[{place}]", one) for place, one in enumerate(primals)]


async def _called(name: str, function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[list[Variable], Any]:
    """The results of a function, and what is shown of them: plain arrays.

    Raises:
        TypeError: it gives something else.
    """
    callable_of(name, "function", function)
    await others_first
    result = function(*arguments)
    if inspect.isawaitable(result):
        result = await result
    results = list(result) if isinstance(result, tuple) else [result]
    for one in results:
        if not isinstance(one, Array):
            raise TypeError(f"{name}: argument function: expected one that gives an array, or a tuple of them, got {one!r}")
    return results, tuple(map(plain_of, results)) if isinstance(result, tuple) else plain_of(result)


def _or_zeros(gradient: Array | None, like: Array) -> Array:
    return zeros(like.shape, like.dtype, like.device) if gradient is None else plain_of(gradient)

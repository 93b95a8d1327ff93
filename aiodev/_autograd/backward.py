"""What users await: the gradients of results, stored at leaves or returned."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from aiodev._array.array import Array
from aiodev._array.creation import zeros
from aiodev._autograd import modes
from aiodev._autograd.engine import Pass
from aiodev._autograd.remembered import remembered_of
from aiodev._autograd.variable import Variable, argument_of, plain_of, run_backward
from aiodev._core.arguments import function as callable_of, instance, integer, items, refusal
from aiodev._core.waiting.reactor import others_first

__all__ = ["backward", "grad", "value_and_grad"]

#: One array, or several.
Several = Array | Sequence[Array]


async def backward(
    tensors: Several,
    grads: Array | None | Sequence[Array | None] = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> None:
    """Add the gradients of results to the ``grad`` of the leaves that they were computed of.

    Submits the backward pass and waits for nothing that it submits; each node runs on the stream of its forward, and the
    current streams follow. The loop has a turn at least once in a millisecond. An error or a cancellation leaves every ``grad``
    as it was, but for leaves with a post-accumulate hook, and releases the graph.

    Args:
        tensors: a variable or several.
        grads: the gradient of each; by default 1 for each that has a single element.
        retain_graph: keep the graph for another pass; by default as ``create_graph``.
        create_graph: compute the gradients by recorded operations, so that they can be differentiated.

    Raises:
        TypeError: something is no variable, or a gradient no array.
        RuntimeError: a variable requires no gradient.
        ValueError: a variable of several elements, or of a complex number, has no gradient, or one of another shape.
        GradientError: a node failed; the cause is what it raised. Errors of kernels arrive where their results are awaited.

    Example:
        >>> import aiodev
        >>> from aiodev import autograd
        >>> async def main():
        ...     x = autograd.Variable(aiodev.asarray([1.0, 2.0, 3.0], device="cpu"))
        ...     await autograd.backward((x * x).sum())
        ...     return await x.grad.tolist()
        >>> import asyncio; asyncio.run(main())
        [2.0, 4.0, 6.0]
    """
    roots = _roots("backward", "tensors", tensors, grads)
    creates = _flag("backward", "create_graph", create_graph)
    retains = creates if retain_graph is None else _flag("backward", "retain_graph", retain_graph)
    remembered = None if creates or len(roots) > 1 else remembered_of(*roots[0])
    if remembered is None or not remembered.submit(roots[0][0].grad_fn, roots[0][1], retains):
        await Pass(roots, None, retains, creates, remembered).run()
    else:
        await others_first


async def grad(
    outputs: Several,
    inputs: Several,
    grads: Array | None | Sequence[Array | None] = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    *,
    allow_unused: bool = False,
) -> tuple[Array | None, ...]:
    """The gradients of ``outputs`` with respect to ``inputs``, leaves or not, one for each; no ``grad`` is changed.

    Only what leads to the inputs is computed. Arguments, errors and what is waited for are as of :func:`backward`.

    Args:
        outputs: a variable or several.
        inputs: a variable or several.
        grads: the gradient of each output.
        retain_graph: keep the graph.
        create_graph: have gradients that can be differentiated.
        allow_unused: give None for an input that the outputs do not depend on, in place of an error.

    Raises:
        RuntimeError: the outputs do not depend on an input.

    Example:
        >>> import aiodev
        >>> from aiodev import autograd
        >>> async def main():
        ...     x = autograd.Variable(aiodev.asarray(3.0, device="cpu"))
        ...     (first,) = await autograd.grad(x * x * x, x, create_graph=True)
        ...     (second,) = await autograd.grad(first, x)
        ...     return await first.item(), await second.item()
        >>> import asyncio; asyncio.run(main())
        (27.0, 18.0)
    """
    roots = _roots("grad", "outputs", outputs, grads)
    asked = _several("grad", "inputs", inputs)
    for place, one in enumerate(asked):
        _check("grad", f"inputs[{place}]", one)
    retain = create_graph if retain_graph is None else retain_graph
    one_pass = Pass(roots, asked, _flag("grad", "retain_graph", retain), _flag("grad", "create_graph", create_graph))
    gradients = await one_pass.run()
    if not allow_unused:
        for place, gradient in enumerate(gradients):
            if gradient is None:
                raise RuntimeError(f"grad: the outputs do not depend on inputs[{place}]; allow_unused=True gives None for it")
    return tuple(gradients)


def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0
) -> Callable[..., Coroutine[Any, Any, tuple[Any, Any]]]:
    """A coroutine function that gives what a function computes, and the gradient of that with respect to arguments.

    The arguments are arrays, which need not be variables; the result is one of a single element. Both are plain arrays.

    Args:
        function: of arrays, to one of a single element; or a coroutine function.
        argnums: of which arguments, by their places: of one the gradient, of several a tuple.

    Raises:
        TypeError: ``function`` is none, ``argnums`` are no integers, or an argument is no array.
        RuntimeError: an argument depends on variables, as one of a function does that another such one calls: nothing of this
            is recorded. ``await grad(…, create_graph=True)`` is.

    Example:
        >>> import aiodev
        >>> from aiodev import autograd
        >>> step = autograd.value_and_grad(lambda w, x: ((w * x) ** 2).sum())
        >>> async def main():
        ...     w, x = aiodev.asarray([1.0, 2.0], device="cpu"), aiodev.asarray([3.0, 4.0], device="cpu")
        ...     value, gradient = await step(w, x)
        ...     return await value.item(), await gradient.tolist()
        >>> import asyncio; asyncio.run(main())
        (73.0, [18.0, 64.0])
    """
    callable_of("value_and_grad", "function", function)
    is_one = isinstance(argnums, numbers.Integral)
    several = [argnums] if is_one else items("value_and_grad", "argnums", argnums, "an integer, or a sequence of them")
    places = tuple([integer("value_and_grad", "argnums", one) for one in several])

    async def compute(*arguments: Any) -> tuple[Any, Any]:
        given = list(arguments)
        try:
            for place in places:
                given[place] = argument_of("value_and_grad", str(place), given[place])
        except IndexError:
            raise refusal("value_and_grad", "argnums", f"places among {len(given)} arguments", argnums) from None
        result = function(*given)
        if inspect.isawaitable(result):
            result = await result
        grads = await grad(result, [given[place] for place in places], allow_unused=True)
        gradients = tuple(
            zeros(given[place].shape, given[place].dtype, given[place].device) if one is None else one
            for place, one in zip(places, grads, strict=True)
        )
        return plain_of(result), gradients[0] if is_one else gradients

    return compute


@run_backward.provide
async def _backward_of(variable: Variable, grad: Array | None, retain_graph: bool | None, create_graph: bool) -> None:
    if grad is not None:
        instance("backward", "grad", grad, Array, "an array, or None")
    elif retain_graph is None and create_graph is False and variable._form.size == 1 and variable._form.dtype.kind != "c":
        remembered = remembered_of(variable, None)  # as usual: there is nothing to be checked
        if remembered is not None and remembered.submit(variable._edge[0], None, False):
            await others_first
            return
    await backward(variable, grad, retain_graph=retain_graph, create_graph=create_graph)


def _flag(function: str, name: str, value: Any) -> bool:
    return instance(function, name, value, bool, "True or False")


def _several(function: str, name: str, given: Any) -> list[Any]:
    if isinstance(given, Array):
        return [given]
    return list(instance(function, name, given, (list, tuple), "a variable, or a sequence of them"))  # type: ignore[arg-type]


def _check(function: str, name: str, value: Any) -> None:
    if not isinstance(value, Array):
        raise TypeError(f"{function}: argument {name}: expected a variable, got {type(value).__name__}")
    if not isinstance(value, Variable) or value._edge is None:
        where = "" if modes.current().enabled else ", and under no_grad nothing is"
        raise RuntimeError(
            f"{function}: argument {name}: no gradient reaches it: "
            f"it is no variable that requires one, nor computed of such{where}"
        )


def _roots(function: str, name: str, tensors: Any, grads: Any) -> list[tuple[Any, Array | None]]:
    """Variables and their gradients, checked."""
    several = _several(function, name, tensors)
    if not several:
        raise ValueError(f"{function}: {name}: expected a variable or more, got none")
    given: list[Any] = [None] * len(several)
    if grads is not None:
        expected = "an array, or one or None for each variable"
        given = [grads] if isinstance(grads, Array) else items(function, "grads", grads, expected)
    if len(given) != len(several):
        raise ValueError(f"{function}: {len(given)} gradients for {len(several)} variables")
    for place, (one, gradient) in enumerate(zip(several, given, strict=True)):
        _check(function, f"{name}[{place}]", one)
        if gradient is None:
            if one.size != 1:
                raise ValueError(
                    f"{function}: a variable of the shape {one.shape} needs a gradient; one of a single element has 1"
                )
            if one.dtype.kind == "c":
                raise ValueError(f"{function}: a complex variable needs a gradient; what decreases is a real number")
            continue
        instance(function, f"grads[{place}]", gradient, Array, "an array, or None")
        is_other = gradient.shape != one.shape or gradient.device is not one.device
        if is_other or (gradient.dtype.kind == "c" and one.dtype.kind != "c"):
            wanted = one._plain._describe()
            raise ValueError(f"{function}: grads[{place}]: expected one like an {wanted}, got an {gradient._describe()}")
    return list(zip(several, given, strict=True))

"""Checkpoints: parts of a graph that are computed again in the backward pass, in place of kept."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from aiodev._array.array import Array
from aiodev._array.creation import empty
from aiodev._autograd import modes
from aiodev._autograd.backward import backward, grad
from aiodev._autograd.function import Context, Function, once_differentiable
from aiodev._autograd.variable import Variable
from aiodev._core.arguments import function as callable_of, is_kind, refusal
from aiodev._core.streams.current import current_stream
from aiodev._generator.defaults import default_generator, fork_rng, set_rng_state

__all__ = ["checkpoint"]


def checkpoint(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of arrays, and keep its arguments only; the backward pass calls it again for what it needs inside.

    So memory is traded for time. The function is called with the same arguments, and draws the same random numbers from the
    default generator, both times; it must do the same. Parameters that it uses beside its arguments get their gradients while
    the pass goes on, so a pass that fails later has added to them; :func:`aiodev.autograd.grad` neither sees nor changes them.

    Args:
        function: of the arguments, to an array or a tuple of arrays.
        arguments: arrays, variables among them, and anything else.

    Raises:
        TypeError: ``function`` is none, or makes coroutines; there is no array among the arguments; or the function returns
            something else than arrays.
        CaptureError: the current stream is being captured.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> from aiodev import autograd
        >>> async def main():
        ...     x = autograd.Variable(aiodev.asarray([1.0, 2.0], device="cpu"))
        ...     y = autograd.checkpoint(lambda x: aiodev.kernels.exp(x * x), x)
        ...     await y.sum().backward()
        ...     return (await x.grad.numpy()).round(3).tolist()
        >>> import asyncio; asyncio.run(main())
        [5.437, 218.393]
    """
    callable_of("checkpoint", "function", function)
    if is_kind(function, inspect.iscoroutinefunction):
        raise TypeError(f"checkpoint: {function!r} makes coroutines; what is called again must not await")
    device = next((one.device for one in arguments if isinstance(one, Array)), None)
    if device is None:
        raise TypeError("checkpoint: expected an array among the arguments")
    recording = current_stream(device).timeline.recording
    if recording is not None:
        recording.refuse("a checkpoint keeps the state of a generator, which is another one at each replay")
    # Parameters inside may need gradients though no argument does: this one has the node recorded.
    anchor = Variable(empty((), "float32", device))
    return _Checkpoint.apply(anchor, function, *arguments)


class _Checkpoint(Function):
    """A call that is made again."""

    @staticmethod
    def forward(ctx: Context, anchor: Array, function: Callable[..., Any], *arguments: Any) -> Any:
        places = [place for place, one in enumerate(arguments) if isinstance(one, Array)]
        ctx.save_for_backward(*(arguments[place] for place in places))
        rest = [None if place in places else one for place, one in enumerate(arguments)]
        device = arguments[places[0]].device
        ctx.__dict__["call"] = function, places, rest, device, default_generator(device).clone_state()
        returned = function(*arguments)
        results = returned if isinstance(returned, tuple) else (returned,)
        if inspect.iscoroutine(returned):
            returned.close()
        if not results or not all(isinstance(one, Array) for one in results):
            raise refusal("checkpoint", "function", "one that gives an array, or a tuple of them", returned)
        return returned

    @staticmethod
    @once_differentiable
    async def backward(ctx: Context, *gradients: Any) -> Any:
        function, places, rest, device, generator = ctx.__dict__["call"]
        arguments = list(rest)
        wanted = ctx.needs_input_grad[2:]
        stores = modes.current().stores
        for place, one in zip(places, ctx.saved_arrays, strict=True):
            arguments[place] = Variable(one) if wanted[place] else one
        with fork_rng(), modes.enable_grad():
            set_rng_state(generator.get_state(), device)
            returned = function(*arguments)
        results = returned if isinstance(returned, tuple) else (returned,)
        reached = [
            (one, gradient)
            for one, gradient in zip(results, gradients, strict=True)
            if isinstance(one, Variable) and one.requires_grad
        ]
        own = [place for place in places if wanted[place]]
        leaf_gradients: Any = {}
        if reached:
            outputs, given = zip(*reached, strict=True)
            leaves = [arguments[place] for place in own]
            if stores:
                await backward(outputs, given)
                leaf_gradients = [leaf.grad for leaf in leaves]
            else:
                leaf_gradients = await grad(outputs, leaves, given, allow_unused=True)
            leaf_gradients = dict(zip(own, leaf_gradients, strict=True))
        return (None, None, *map(leaf_gradients.get, range(len(arguments))))

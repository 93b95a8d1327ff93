"""Functions with a gradient that their author writes, and gradients of users' operations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import numpy as np
import pytest

import aiodev
import aiodev.kernels as kernels
from aiodev import autograd

pytestmark = pytest.mark.anyio


def a_leaf(*values: float) -> Any:
    return autograd.Variable(aiodev.asarray(list(values) or [1.0, 2.0], device="cpu"))


class Product(autograd.Function):
    """Of two arrays."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        assert type(x) is aiodev.Array and not autograd.is_grad_enabled()
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_arrays
        return g * y if ctx.needs_input_grad[0] else None, g * x if ctx.needs_input_grad[1] else None


class Exponential(autograd.Function):
    """Which keeps its result."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        result = kernels.exp(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (result,) = ctx.saved_arrays
        return g * result


class Later(autograd.Function):
    """Whose backward waits for an event."""

    @staticmethod
    def forward(ctx: Any, x: Any, event: anyio.Event, order: list[str]) -> Any:
        ctx.event, ctx.order = event, order
        return x * 2.0

    @staticmethod
    async def backward(ctx: Any, g: Any) -> Any:
        ctx.order.append("begins")
        await ctx.event.wait()
        ctx.order.append("goes on")
        return g * 2.0, None, None


async def test_a_function_and_its_gradient() -> None:
    """With what is saved, and only for arguments that need one."""
    x, y = a_leaf(), aiodev.asarray([3.0, 4.0], device="cpu")
    await Product.apply(x, y).sum().backward()
    assert await x.grad.tolist() == [3.0, 4.0]


async def test_gradients_of_a_functions_gradient() -> None:
    """Saved arguments and results are variables again where that is asked for."""
    x, y = a_leaf(), a_leaf(3.0, 4.0)
    await autograd.gradgradcheck(Product.apply, [x, y])
    await autograd.gradgradcheck(Exponential.apply, [x])


async def test_several_results() -> None:
    """Those without a gradient are zeros to backward; those marked are plain arrays."""

    class Both(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            places = kernels.argmax(x)
            least = kernels.min(x)
            ctx.mark_non_differentiable(least)
            return x * 2.0, x * 3.0, places, least

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any, places: Any, least: Any) -> Any:
            return first * 2.0 + second * 3.0

    x = a_leaf()
    first, _, places, least = Both.apply(x)
    assert type(places) is type(least) is aiodev.Array
    await first.sum().backward()
    assert await x.grad.tolist() == [2.0, 2.0]


async def test_a_coroutine_as_backward() -> None:
    """It waits as a task of its own, while other branches go on."""
    event, order = anyio.Event(), []
    x, w = a_leaf(), a_leaf()
    slow = Later.apply(x, event, order)

    def note(gradient: Any) -> None:
        order.append("other branch")
        event.set()

    w.register_hook(note)
    await ((w * 3.0).sum() + slow.sum()).backward()
    assert order[-1] == "goes on" and "other branch" in order
    assert await x.grad.tolist() == [2.0, 2.0]


async def test_several_coroutines_at_once() -> None:
    """All have begun before the first goes on."""
    events, order = [anyio.Event() for _ in range(3)], []
    leaves = [a_leaf() for _ in events]
    total = sum(Later.apply(x, event, order).sum() for x, event in zip(leaves, events, strict=True))
    async with anyio.create_task_group() as group:
        group.start_soon(total.backward)
        while order != ["begins"] * 3:
            await anyio.lowlevel.checkpoint()
        for event in reversed(events):
            event.set()
    for x in leaves:
        assert await x.grad.tolist() == [2.0, 2.0]


async def test_a_coroutine_that_fails() -> None:
    """It fails the pass as any node does, and others are cancelled."""

    class Fails(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1.0

        @staticmethod
        async def backward(ctx: Any, g: Any) -> Any:
            await anyio.lowlevel.checkpoint()
            raise ValueError("later")

    x, y = a_leaf(), a_leaf()
    loss = Fails.apply(x).sum() + Later.apply(y, anyio.Event(), []).sum()
    with pytest.raises(autograd.GradientError, match="later") as caught:
        await loss.backward()
    assert caught.value.node.endswith("Fails") and isinstance(caught.value.__cause__, ValueError)
    assert x.grad is None and y.grad is None


@pytest.mark.parametrize("asks", [False, True])
def test_a_coroutine_that_waits_for_what_was_cancelled(asks: bool) -> None:
    """By somebody else: the pass was not, so it fails, and stores and gives nothing."""

    class Waits(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1.0

        @staticmethod
        async def backward(ctx: Any, g: Any) -> Any:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            return await future

    x, y = a_leaf(), a_leaf()

    async def main() -> None:
        loss = (Waits.apply(x) * 2.0 + x * 3.0 + y).sum()
        await (autograd.grad(loss, x) if asks else loss.backward())

    with pytest.raises(autograd.GradientError, match="Waits") as caught:
        asyncio.run(main())
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert x.grad is None and y.grad is None


async def test_a_pass_with_coroutines_is_cancelled() -> None:
    """Nothing is stored, and no task is left."""
    x = a_leaf()
    loss = Later.apply(x, anyio.Event(), order := []).sum()
    async with anyio.create_task_group() as group:
        group.start_soon(loss.backward)
        while not order:
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert x.grad is None


async def test_a_coroutine_runs_on_its_nodes_stream() -> None:
    """Also behind an await, and what it submits is waited for by who takes it."""
    seen = []

    class Spy(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1.0

        @staticmethod
        async def backward(ctx: Any, g: Any) -> Any:
            await anyio.lowlevel.checkpoint()
            seen.append(aiodev.current_stream("cpu"))
            return g * 1.0

    side = aiodev.Stream("cpu")
    x = a_leaf()
    async with aiodev.Stream("cpu") as main:
        y = x * 2.0
        side.wait_stream(main)
        with side:
            loss = Spy.apply(y).sum()
        await loss.backward()
        assert seen == [side] and aiodev.current_stream() is main
        assert await x.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("returned", [(None, None), 3.0, ("text",)])
async def test_what_backward_returns_is_checked(returned: Any) -> None:
    """As many gradients as arguments, each an array or None."""

    class Wrong(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return returned

    with pytest.raises(autograd.GradientError, match="expected 1 gradients"):
        await Wrong.apply(a_leaf()).sum().backward()


def test_what_forward_returns_is_checked() -> None:
    """Arrays."""

    class Wrong(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return 3.0

    with pytest.raises(TypeError, match="expected an array, or a tuple"):
        Wrong.apply(a_leaf())


async def test_saved_arrays_have_versions() -> None:
    """A change in place is an error."""
    x = a_leaf()
    y = Exponential.apply(x)
    loss = y.sum()
    y.detach().copy_from(aiodev.ones(2, device="cpu"))
    with pytest.raises(autograd.GradientError, match="written to since"):
        await loss.backward()


async def test_once_differentiable() -> None:
    """Its gradient can be computed where graphs are created, and not be differentiated."""

    class Once(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @autograd.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_arrays
            assert type(x) is type(g) is aiodev.Array
            return 2.0 * x * g

    x = a_leaf()
    y = a_leaf()
    (found,) = await autograd.grad((Once.apply(x) * y).sum(), x, create_graph=True)
    assert await found.tolist() == [2.0, 8.0]
    with pytest.raises(autograd.GradientError, match="once differentiable"):
        await found.sum().backward()


def test_there_are_no_objects_of_a_function() -> None:
    """A call of the class is an error that names ``apply``."""
    with pytest.raises(TypeError, match=r"Product\.apply"):
        Product()


# Users' operations


def a_scale() -> Any:
    @aiodev.kernel
    def scale_elements(i: int, factor: Any, x: Any, y: Any, out: Any) -> None:
        out[i] = factor * x[i] * y[i]

    @aiodev.operation(numbers=["factor"], reads=["x", "y"], writes="out")
    def scaled(call: Any, factor: float, x: Any, y: Any, /, *, power: int = 1, out: Any = None) -> Any:
        out = call.out(x.shape, x.dtype)
        call.launch(scale_elements, x.size, factor.astype(x.dtype), x.reshape(-1), y.reshape(-1), out.reshape(-1))
        return out

    return scaled


async def test_an_operations_gradient_for_each_operand() -> None:
    """Given operands, numbers, options, the result and shapes by their names."""
    scaled = a_scale()
    seen = []

    def of_x(g: Any, factor: float, y: Any, power: int, shapes: Any, result: Any) -> Any:
        seen.append((factor, power, shapes["x"], result.shape))
        return factor * g * y

    scaled.operation.gradient(x=of_x, y=lambda g, factor, x: factor * g * x)
    x, y = a_leaf(), a_leaf(3.0, 4.0)
    for _ in range(3):  # the third is made by what was remembered
        x.grad = y.grad = None
        await scaled(2.0, x, y, power=7).sum().backward()
        assert await x.grad.tolist() == [6.0, 8.0] and await y.grad.tolist() == [2.0, 4.0]
    assert seen == [(2.0, 7, (2,), (2,))] * 3
    await autograd.gradgradcheck(lambda x, y: scaled(2.0, x, y), [x, y])


async def test_an_operations_joint_gradient() -> None:
    """One function for all operands that are arrays."""
    scaled = a_scale()

    @scaled.operation.gradient
    def both(g: Any, factor: float, x: Any, y: Any) -> Any:
        common = factor * g
        return common * y, common * x

    x, y = a_leaf(), a_leaf(3.0, 4.0)
    for _ in range(3):
        x.grad = y.grad = None
        await scaled(2.0, x, y).sum().backward()
        assert await x.grad.tolist() == [6.0, 8.0] and await y.grad.tolist() == [2.0, 4.0]


FUSED: list[Callable[..., Any]] = [
    lambda x, y: x + 0.5 * y * y,
    lambda x, y: kernels.exp(-x * y) / (1 + kernels.abs(y)),
    lambda x, y: kernels.where(x > 1, kernels.tanh(x) * y, kernels.sqrt(y)) - x,
    lambda x, y: kernels.maximum(x, y) ** 2 + kernels.sin(x),
    lambda x, y: x.astype("float32").astype("float64") * y * x,
    lambda x, y: x,
    lambda x, y: kernels.floor(x) * y,
]


@pytest.mark.parametrize("function", FUSED)
async def test_gradients_of_fused_functions_are_derived(function: Any) -> None:
    """From the steps that it is traced to, to any order; with the values that the steps give one after the other."""
    fused = kernels.fused(lambda x, y: function(x, y))
    values = [1.5, 0.25, 3.5], [[2.0], [0.75]]
    shape = (2, 3)
    found, expected = [], []
    for call, grads in ((fused, found), (function, expected)):
        x, y = (autograd.Variable(aiodev.asarray(value, dtype="float64", device="cpu")) for value in values)
        result = call(x, y)
        weights = aiodev.asarray(np.arange(1.0, 7).reshape(shape), device="cpu")
        loss = (aiodev.broadcast_to(result, shape) * weights).sum()
        first = await autograd.grad(loss, [x, y], create_graph=True, allow_unused=True)
        grads += [None if one is None else await one.numpy() for one in first]
        known = [(one * one).sum() for one in first if isinstance(one, autograd.Variable)]
        if known:
            second = await autograd.grad(sum(known[1:], known[0]), [x, y], allow_unused=True)
            grads += [None if one is None else await one.numpy() for one in second]
    for one, other in zip(found, expected, strict=False):
        zero = 0.0 if one is None or other is None else None
        np.testing.assert_allclose(zero if one is None else one, zero if other is None else other, rtol=1e-12)


async def test_gradients_of_operators_in_place_in_fused_functions() -> None:
    """Each step has the operands that it had, whatever became of them."""

    def in_place(x: Any, y: Any) -> Any:
        z = x * y
        before = z * z
        z += x
        z *= z
        return z + before

    values = aiodev.asarray([1.5, 0.25], device="cpu"), aiodev.asarray([2.0, 3.0], device="cpu")
    grads = []
    for function in (in_place, lambda x, y: (x * y + x) ** 2 + (x * y) ** 2):
        x, y = map(autograd.Variable, values)
        grads.append([await one.numpy() for one in await autograd.grad(kernels.fused(function)(x, y).sum(), [x, y])])
    np.testing.assert_allclose(*grads, rtol=1e-12)


async def test_a_number_of_one_call_is_a_variable_of_the_next() -> None:
    """Gradients that were derived for the first serve the second."""
    saxpy = kernels.fused(lambda a, x, y: a * x + y)
    a, x, y = a_leaf(3.0, 4.0), a_leaf(), a_leaf()
    (first,) = await autograd.grad(saxpy(2.0, x, y).sum(), [x])
    assert await first.tolist() == [2.0, 2.0]
    found = await autograd.grad(saxpy(a, x, y).sum(), [a, x, y])
    assert [await one.tolist() for one in found] == [[1.0, 2.0], [3.0, 4.0], [1.0, 1.0]]


async def test_a_gradient_that_cannot_be_derived() -> None:
    """Of a function that decides by values: it is declared, as that of any operation; a declared one comes first."""
    step = kernels.fused(lambda x, dx: x + dx if x > 0 else x)
    x, dx = a_leaf(), a_leaf(3.0, 4.0)
    with pytest.raises(NotImplementedError, match="no gradient is declared"):
        step(x, dx)
    step.operation.gradient(x=lambda g: g, dx=lambda g, dx: g * dx)
    for own in (step, kernels.fused(lambda x, dx: x * dx)):
        if own is not step:
            own(x, dx)  # it is derived
            own.operation.gradient(x=lambda g: 2 * g, dx=lambda g: 3 * g)
        first, second = await autograd.grad(own(x, dx).sum(), [x, dx])
        assert await second.tolist() == ([3.0, 4.0] if own is step else [3.0, 3.0])


@pytest.mark.parametrize(
    "declare",
    [
        lambda op: op.gradient(z=lambda g: g),
        lambda op: op.gradient(x=lambda g, other: g),
        lambda op: op.gradient(x=lambda g, out: g),
        lambda op: op.gradient(),
        lambda op: op.gradient(lambda g: (g, g), x=lambda g: g),
        lambda op: (op.gradient(x=lambda g: g), op.gradient(y=lambda g: g)),
    ],
)
def test_gradients_are_checked_where_they_are_declared(declare: Any) -> None:
    """Names, and that they are declared once."""
    with pytest.raises(TypeError, match="scaled: gradient"):
        declare(a_scale().operation)


async def test_a_gradient_of_a_wrong_shape() -> None:
    """It fails the pass, by the name of the operation."""
    scaled = a_scale()
    scaled.operation.gradient(x=lambda g: aiodev.ones(5, device="cpu"), y=lambda g: g)
    with pytest.raises(autograd.GradientError, match=r"scaled.*shape \(5,\)"):
        await scaled(2.0, a_leaf(), a_leaf()).sum().backward()


async def test_numbers_of_a_recorded_call_are_its_own() -> None:
    """Another value at the next call of the same kind has another gradient."""
    x = a_leaf()
    for factor in (2.0, 3.0, 4.0):
        x.grad = None
        await (x * factor).sum().backward()
        assert np.array_equal(await x.grad.numpy(), [factor] * 2)

"""Checkpoints: computed again in place of kept."""

from __future__ import annotations

import asyncio
import functools
import gc
import weakref
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings
from selection import examples

import aiodev
import aiodev.kernels as kernels
from aiodev import autograd
from aiodev.kernels import random

pytestmark = pytest.mark.anyio


def a_leaf(*values: float) -> Any:
    return autograd.Variable(aiodev.asarray(list(values) or [1.0, 2.0], device="cpu"))


async def test_gradients_are_those_without_a_checkpoint() -> None:
    """Of arguments, and of parameters that the function uses beside them."""
    x, w = a_leaf(), a_leaf(3.0, 4.0)
    await autograd.checkpoint(lambda x: kernels.sin(x * w), x).sum().backward()
    value, factor = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    assert np.allclose(await x.grad.numpy(), np.cos(value * factor) * factor)
    assert np.allclose(await w.grad.numpy(), np.cos(value * factor) * value)


async def test_grad_through_a_checkpoint() -> None:
    """No ``grad`` is changed, of parameters that the function uses beside its arguments either, nor through several of them."""
    x, w = a_leaf(), a_leaf(3.0, 4.0)

    def function(x: Any) -> Any:
        return autograd.checkpoint(lambda y: y * w, x * w)

    (found,) = await autograd.grad(autograd.checkpoint(function, x).sum(), x)
    assert await found.tolist() == [9.0, 16.0]
    assert x.grad is None and w.grad is None
    (found,) = await autograd.grad(autograd.checkpoint(lambda x: x * w, x).sum(), w)
    assert await found.tolist() == [1.0, 2.0] and w.grad is None


@pytest.mark.filterwarnings("error")
async def test_coroutine_functions_are_refused() -> None:
    """Nothing could await them; none is left that nobody awaited."""

    async def function(x: Any) -> Any:
        return x

    for wrong in (function, lambda x: function(x)):
        with pytest.raises(TypeError, match=r"checkpoint: .*(makes coroutines|expected one that gives an array)"):
            autograd.checkpoint(wrong, a_leaf())
    gc.collect()


async def test_what_is_inside_is_not_kept() -> None:
    """Its memory is free behind the call."""
    kept: list[Any] = []

    def function(x: Any) -> Any:
        inner = kernels.exp(x)
        kept.append(weakref.ref(inner._buffer))
        return inner * inner

    x = a_leaf()
    loss = autograd.checkpoint(function, x).sum()
    assert kept[0]() is None
    await loss.backward()
    assert len(kept) == 2 and np.allclose(await x.grad.numpy(), 2 * np.exp([2.0, 4.0]))


async def test_arguments_of_any_kind() -> None:
    """Numbers and arrays that need no gradient; an array of parameters alone."""
    w = a_leaf()
    x = aiodev.asarray([3.0, 4.0], device="cpu")
    await autograd.checkpoint(lambda x, power: (x * w) ** power, x, 2).sum().backward()
    assert await w.grad.tolist() == [18.0, 64.0]


async def test_random_numbers_are_the_same_again() -> None:
    """And the generator goes on as if nothing had been drawn in the backward pass."""
    drawn = []

    def function(x: Any) -> Any:
        noise = random.random(2, device="cpu")
        drawn.append(noise)
        return x * noise

    x = a_leaf()
    loss = autograd.checkpoint(function, x).sum()
    state = aiodev.get_rng_state("cpu")
    await loss.backward()
    assert aiodev.get_rng_state("cpu") == state
    assert await drawn[0].tolist() == await drawn[1].tolist() == await x.grad.tolist()


async def test_gradients_are_differentiated_again() -> None:
    """As those without a checkpoint, and through several of them: second derivatives, and the gradient of a penalty."""
    a = aiodev.asarray([1.0, 2.0], device="cpu")

    def cubed(x: Any) -> Any:
        return autograd.checkpoint(lambda y: y * autograd.checkpoint(kernels.square, y), x)

    assert await (await autograd.hessian(lambda x: (cubed(x) + x * x).sum())(a)).tolist() == [[8.0, 0.0], [0.0, 14.0]]
    assert await (await autograd.hessian(lambda x: cubed(x).sum() ** 2)(a)).tolist() == [[126.0, 72.0], [72.0, 504.0]]
    x = autograd.Variable(a)
    (found,) = await autograd.grad((cubed(x) + x * x).sum(), [x], create_graph=True)
    await kernels.square(found).sum().backward()
    assert await x.grad.tolist() == [80.0, 448.0]
    _, change = await autograd.jvp(lambda x: x + cubed(x), [a], [aiodev.ones(2, device="cpu")])
    assert await change.tolist() == [4.0, 13.0]


async def test_what_is_used_beside_the_arguments_has_its_gradients() -> None:
    """Whatever asks for them, leaves and what is computed of them, inside of other checkpoints, too."""
    x, u0 = aiodev.asarray([1.0, 2.0], device="cpu"), aiodev.asarray([3.0, 4.0], device="cpu")

    def function(u: Any) -> Any:
        twice = u * 2.0
        inner = autograd.checkpoint(lambda q: autograd.checkpoint(lambda p: p * twice, q) * q, x)
        return (u * inner).sum()

    _, gradient = await autograd.value_and_grad(function)(u0)
    assert await gradient.tolist() == [12.0, 64.0]
    u = autograd.Variable(u0)
    await function(u).backward()
    assert await u.grad.tolist() == [12.0, 64.0]
    assert await (await autograd.hessian(function)(u0)).tolist() == [[4.0, 0.0], [0.0, 16.0]]
    _, back = await autograd.vjp(lambda u: autograd.checkpoint(lambda q: q * u, x), u0)
    for _ in range(2):
        (found,) = await back(aiodev.ones(2, device="cpu"))
        assert await found.tolist() == [1.0, 2.0]


class Cubed(autograd.Function):
    """With an array among its attributes."""

    @staticmethod
    def forward(ctx: autograd.Context, x: Any, calls: list[int]) -> Any:
        """The third power."""
        calls.append(1)
        ctx.squared = x * x
        result = ctx.squared * x
        ctx.save_for_backward(x, None, result)
        return result

    @staticmethod
    def backward(ctx: autograd.Context, g: Any) -> Any:
        """Of what is kept in both ways."""
        x, nothing, result = ctx.saved_arrays
        assert nothing is None
        return (ctx.squared + 2 * result / x) * g, None


async def test_functions_of_users_inside() -> None:
    """What they save, and their attributes, are left out, and there again."""
    calls: list[int] = []
    x = a_leaf()
    loss = autograd.checkpoint(lambda x: Cubed.apply(Cubed.apply(x * 1.0, calls), calls), x).sum()
    contexts = [loss.grad_fn.next_functions[0]]
    contexts.append(contexts[0].next_functions[0])
    assert all(not one.__dict__ and not hasattr(one.kept, "__len__") for one in contexts)
    await loss.backward()
    assert await x.grad.tolist() == [9.0, 9 * 2.0**8]
    assert len(calls) == 4


async def test_an_argument_that_was_written_to_is_noticed() -> None:
    """And so is a parameter that the function uses beside its arguments."""
    for wrong in range(2):
        x, w = a_leaf(), a_leaf()
        loss = autograd.checkpoint(lambda x, w=w: kernels.exp(x * w), x).sum()
        with autograd.no_grad():
            (x, w)[wrong][0] = 3.0
        with pytest.raises(autograd.GradientError) as caught:
            await loss.backward()
        assert "written to since" in str(caught.value.__cause__)


class Scaled(autograd.Function):
    """A product with an array that is none of its arguments."""

    @staticmethod
    def forward(context: Any, x: Any, scale: list[Any]) -> Any:
        context.save_for_backward(*scale)
        return x * scale[0]

    @staticmethod
    def backward(context: Any, grad: Any) -> Any:
        return grad * context.saved_arrays[0], None


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_mask_that_was_written_to_is_noticed(depth: int) -> None:
    """As it is without a checkpoint, in one within another, too; not where no gradient is made of it."""
    mask = aiodev.asarray([1.0, 0.5], device="cpu")
    functions = {
        "operand 1": lambda x: kernels.multiply(x, mask),
        "saved array 0": lambda x: Scaled.apply(x, [mask]),
        "argument 1": lambda x: autograd.checkpoint(kernels.multiply, x, mask),
    }
    for name, function in functions.items():
        whole = function
        for _ in range(depth):
            whole = functools.partial(autograd.checkpoint, whole)
        loss = whole(a_leaf()).sum()
        mask[0] = 3.0
        with pytest.raises(autograd.GradientError) as caught:
            await loss.backward()
        assert f"{name}, kept for the gradient, has been written to since" in str(caught.value.__cause__)
    x = a_leaf()
    loss = autograd.checkpoint(lambda x: kernels.exp(x) + mask, x).sum()
    mask[0] = 4.0
    await loss.backward()
    assert np.allclose(await x.grad.numpy(), np.exp([1.0, 2.0]))


async def test_a_function_that_does_something_else_is_noticed() -> None:
    """More than the first time, less, something else, or with another shape."""
    others = {
        "records exp of (2,) float64, where it has recorded nothing": lambda x: kernels.exp(kernels.exp(x)),
        "records nothing, where it has recorded exp of (2,) float64": lambda x: x,
        "records sin of (2,) float64, where it has recorded exp of (2,) float64": kernels.sin,
        "records reshape of (1, 2) float64, where it has recorded exp of (2,) float64": lambda x: kernels.exp(x.reshape(1, 2)),
    }
    for expected, other in others.items():
        calls = [other, kernels.exp]
        with pytest.raises(autograd.GradientError) as caught:
            await autograd.checkpoint(lambda x, calls=calls: calls.pop()(x), a_leaf()).sum().backward()
        assert expected in str(caught.value.__cause__)


async def test_a_checkpoint_has_the_stream_of_its_call() -> None:
    """Both times, wherever the pass is called."""
    streams = []

    def function(x: Any) -> Any:
        streams.append(aiodev.current_stream("cpu"))
        return kernels.exp(x)

    async with aiodev.Stream("cpu") as own:
        x = a_leaf()
        loss = autograd.checkpoint(function, x).sum()
    await loss.backward()
    assert streams == [own, own]
    assert np.allclose(await x.grad.numpy(), np.exp([1.0, 2.0]))


async def test_a_retained_graph_is_computed_again_once() -> None:
    """By the first of its passes; and a part of it that nothing asks for is not."""
    calls: list[int] = []

    def function(x: Any) -> Any:
        calls.append(1)
        return kernels.exp(x)

    x, y = a_leaf(), a_leaf()
    loss = (autograd.checkpoint(function, x) * y).sum()
    await autograd.grad(loss, y, retain_graph=True)
    assert len(calls) == 1
    for _ in range(2):
        await loss.backward(retain_graph=True)
    assert len(calls) == 2
    assert np.allclose(await x.grad.numpy(), 2 * np.exp([1.0, 2.0]) * [1.0, 2.0])


async def test_nothing_is_recorded_where_recording_is_off() -> None:
    """A checkpoint is the call then."""
    with autograd.no_grad():
        assert type(autograd.checkpoint(kernels.exp, a_leaf())) is aiodev.Array


def test_a_checkpoint_needs_an_array() -> None:
    """Which says where it is."""
    with pytest.raises(TypeError, match="checkpoint"):
        autograd.checkpoint(lambda: None)


Tree = tuple[Any, ...]


def trees() -> st.SearchStrategy[Tree]:
    """Formulas of the argument, two parameters and two masks, and checkpoints of formulas of another formula."""
    ends = st.sampled_from([("x",), ("w", 0), ("w", 1), ("m", 0), ("m", 1)])

    def larger(within: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        ways = [st.tuples(st.sampled_from(["tanh", "sin"]), within)]
        ways += [st.tuples(st.sampled_from(["add", "multiply"]), within, within)]
        ways += [st.tuples(st.just("checkpoint"), within, within)] * 2
        return st.one_of(ways)

    return st.recursive(ends, larger, max_leaves=12)


def of_tree(tree: Tree, x: Any, given: dict[str, Any], checkpoint: Any) -> Any:
    """What a formula gives."""
    kind, *parts = tree
    if kind == "x":
        return x
    if kind in given:
        return given[kind][parts[0]]
    if kind == "checkpoint":
        inner, argument = parts
        # A sum, since an argument itself must not change, whatever is done with it.
        value = of_tree(argument, x, given, checkpoint) + given["w"][0]
        return checkpoint(lambda y: of_tree(inner, y, given, checkpoint) + y, value)
    return getattr(kernels, kind)(*[of_tree(one, x, given, checkpoint) for one in parts])


async def outcome(tree: Tree, written: int | None, order: int, checkpoint: Any) -> Any:
    """The gradients of a formula, after a mask was written to, or that they are refused."""
    host = np.array([[0.3, -0.2], [0.1, 0.5], [-0.4, 0.2], [0.7, 0.6], [0.2, -0.1]])
    x, *w = (autograd.Variable(aiodev.asarray(row, device="cpu")) for row in host[:3])
    given = {"w": w, "m": [aiodev.asarray(row, device="cpu") for row in host[3:]]}
    total = (of_tree(tree, x, given, checkpoint) + x + w[0] + w[1]).sum()
    if written is not None:
        given["m"][written][0] = 2.0
    try:
        grads = await autograd.grad(total, [x, *w], create_graph=order == 2)
        if order == 2:
            grads = await autograd.grad(sum((g * g).sum() for g in grads) + x.sum() + w[0].sum() + w[1].sum(), [x, *w])
    except autograd.GradientError as error:
        return str(error.__cause__).partition(", kept for")[2]
    return [(await one.numpy()).tolist() for one in grads]


@settings(max_examples=examples(300), deadline=None)
@given(tree=trees(), written=st.sampled_from([None, None, 0, 1]), order=st.integers(1, 2))
def test_formulas_with_checkpoints_are_those_without(tree: Tree, written: int | None, order: int) -> None:
    """Checkpoints in checkpoints, of what is an argument and what is not: the same gradients to the bit, or the same refusal.

    A mask that gradients are not made of may be written to, but not where a checkpoint reads it again.
    """
    expected = asyncio.run(outcome(tree, written, order, lambda function, x: function(x)))
    assume(written is None or isinstance(expected, str))
    assert asyncio.run(outcome(tree, written, order, autograd.checkpoint)) == expected

"""Checkpoints: computed again in place of kept."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

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
    (unused,) = await autograd.grad(autograd.checkpoint(lambda x: x * w, x).sum(), w, allow_unused=True)
    assert unused is None and w.grad is None


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


async def test_gradients_of_a_checkpoint_are_differentiated_once() -> None:
    """To do so again is an error."""
    x, y = a_leaf(), a_leaf()
    loss = (autograd.checkpoint(kernels.exp, x) * y).sum()
    (found,) = await autograd.grad(loss, x, create_graph=True)
    with pytest.raises(autograd.GradientError, match="once differentiable"):
        await found.sum().backward()


def test_a_checkpoint_needs_an_array() -> None:
    """Which says where it is."""
    with pytest.raises(TypeError, match="checkpoint"):
        autograd.checkpoint(lambda: None)

"""What functions that differentiate, and optimizers, refuse, and that they name it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev import autograd, optim

pytestmark = pytest.mark.anyio


def a_leaf() -> autograd.Variable:
    return autograd.Variable(aiodev.ones(2, device="cpu"))


@pytest.mark.parametrize("kind", [autograd.Node, autograd.Context, autograd.HookHandle, autograd.Function])
def test_what_the_library_makes_is_not_made_by_users(kind: Any) -> None:
    with pytest.raises(TypeError, match=f"^{kind.__name__}: "):
        kind()


@pytest.mark.parametrize("betas", [3, 0.9, None, np.array(0.5), object()])
def test_betas_that_are_no_pair(betas: Any) -> None:
    with pytest.raises(TypeError, match="Adam: argument betas: expected two numbers"):
        optim.Adam([a_leaf()], betas=betas)


def test_too_many_betas() -> None:
    with pytest.raises(ValueError, match="AdamW: argument betas: expected two numbers"):
        optim.AdamW([a_leaf()], betas=(0.1, 0.2, 0.3))  # type: ignore[arg-type]


def test_parameters() -> None:
    with pytest.raises(TypeError, match="SGD: argument parameters: expected variables"):
        optim.SGD(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="clip_grad_norm: argument parameters: expected variables"):
        optim.clip_grad_norm([aiodev.ones(2, device="cpu")], 1.0)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="Optimizer: "):
        optim.Optimizer([a_leaf()], 0.1)
    assert len(optim.SGD(a_leaf() for _ in range(3)).parameters) == 3


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda state: 3, TypeError, "argument state"),
        (lambda state: {}, ValueError, "expected arrays"),
        (lambda state: {"state": state["state"]}, ValueError, "a learning rate"),
        (lambda state: {**state, "options": 3}, TypeError, "argument options"),
        (lambda state: {**state, "options": {"momentum": 0.9}}, ValueError, "options: expected ['beta1'"),
        (lambda state: {**state, "state": {**state["state"], "0.mean": [0, 0]}}, TypeError, "argument 0.mean"),
        (lambda state: {**state, "state": {**state["state"], "0.mean": np.zeros(3)}}, ValueError, "the shape"),
        (lambda state: {**state, "state": {**state["state"], "0.mean": np.full(2, "a")}}, TypeError, "0.mean: expected real"),
        (lambda state: {**state, "state": {**state["state"], "0.mean": np.full(2, 1j)}}, TypeError, "0.mean: expected real"),
    ],
)
def test_what_is_no_state(change: Any, error: type[Exception], words: str) -> None:
    optimizer = optim.Adam([a_leaf()])
    with pytest.raises(error, match=f"Adam: load_state_dict: .*{re.escape(words)}"):
        optimizer.load_state_dict(change(optimizer.state_dict()))


async def test_gradients_and_inputs() -> None:
    result = (a_leaf() * 2).sum()
    with pytest.raises(TypeError, match="backward: argument grads: expected an array"):
        await autograd.backward(result, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="backward: argument grad: expected an array, or None"):
        await result.backward([1.0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="grad: argument outputs: expected a variable"):
        await autograd.grad(3, result)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="grad: argument inputs: expected a variable"):
        await autograd.grad(result, 3)  # type: ignore[arg-type]


async def test_places_of_arguments() -> None:
    for argnums in (0.5, np.array(5.0), ["0"], None):
        with pytest.raises(TypeError, match="value_and_grad: argument argnums: expected an integer"):
            autograd.value_and_grad(abs, argnums)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="value_and_grad: argument argnums: expected places among 1 arguments"):
        await autograd.value_and_grad(abs, 1)(a_leaf())
    _, gradient = await autograd.value_and_grad(lambda x: x.sum(), np.int64(0))(a_leaf())  # type: ignore[arg-type]
    assert await gradient.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("check", [autograd.gradcheck, autograd.gradgradcheck])
async def test_checks(check: Any) -> None:
    for arguments, named, error, word in [
        ((3, [a_leaf()]), {}, TypeError, "argument function"),
        ((abs, 3), {}, TypeError, "argument inputs"),
        ((abs, []), {}, TypeError, "inputs: expected a variable"),
        ((abs, [a_leaf()]), {"eps": 0}, ValueError, "argument eps"),
        ((abs, [a_leaf()]), {"rtol": "1"}, TypeError, "argument rtol"),
        ((abs, [a_leaf()]), {"seed": -1}, ValueError, "argument seed"),
    ]:
        with pytest.raises(error, match=f"^{check.__name__}: {word}"):
            await check(*arguments, **named)
    with pytest.raises(TypeError, match="gradcheck: argument function: expected one that gives an array"):
        await check(lambda x: 3, [a_leaf()])


async def test_a_gradient_that_a_result_cannot_have() -> None:
    """A complex one of a real result, whose other part would be lost; another precision is converted."""
    x = a_leaf()
    with pytest.raises(ValueError, match=r"backward: grads\[0\]: expected one like an .*float64.*, got an .*complex128"):
        await autograd.backward(x * 2.0, aiodev.ones(x.shape, "complex128", "cpu"))
    await autograd.backward(x * 2.0, aiodev.ones(x.shape, "float32", "cpu"))
    assert x.grad.dtype == x.dtype and set(await x.grad.tolist()) == {2.0}


async def test_where_nothing_is_recorded() -> None:
    with autograd.no_grad(), pytest.raises(RuntimeError, match=r"grad: .* no gradient reaches it: .*no_grad"):
        await autograd.value_and_grad(lambda x: x.sum())(a_leaf())


def test_what_a_checkpoint_calls() -> None:
    with pytest.raises(TypeError, match="checkpoint: argument function: expected a function"):
        autograd.checkpoint(3, a_leaf())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="checkpoint: argument function: expected one that gives an array"):
        autograd.checkpoint(lambda x: None, a_leaf())


def test_flags_that_are_no_truth_values() -> None:
    array = aiodev.ones(2, device="cpu")
    with pytest.raises(TypeError, match="astype: argument copy: expected True or False"):
        array.astype("float64", copy=np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="__dlpack__: argument copy: expected True, False or None"):
        array.__dlpack__(copy=1)  # type: ignore[arg-type]
    assert array.astype("float64", copy=np.False_) is array  # type: ignore[arg-type]

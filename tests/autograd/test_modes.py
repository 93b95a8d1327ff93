"""Modes: whether what a task computes is recorded."""

from __future__ import annotations

import inspect
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import aiodev
from aiodev import autograd

pytestmark = pytest.mark.anyio


def a_leaf() -> Any:
    return autograd.Variable(aiodev.ones(2, device="cpu"))


def test_no_grad_and_enable_grad() -> None:
    """Nested in each other."""
    x = a_leaf()
    with autograd.no_grad():
        assert type(x * 2.0) is type(x[0]) is type(x.T) is aiodev.Array
        with autograd.enable_grad():
            assert (x * 2.0).requires_grad
        assert not autograd.is_grad_enabled()
    assert (x * 2.0).requires_grad


def test_a_call_that_is_known_heeds_the_mode() -> None:
    """Also where the same call was recorded before."""
    x = a_leaf()
    for _ in range(3):
        assert (x * 2.0).requires_grad
        with autograd.no_grad():
            assert type(x * 2.0) is aiodev.Array


def test_set_grad_enabled() -> None:
    """By a truth value."""
    for wanted in (False, True):
        with autograd.set_grad_enabled(wanted):
            assert autograd.is_grad_enabled() is wanted
    with pytest.raises(TypeError, match="True or False"):
        autograd.set_grad_enabled(1)  # type: ignore[arg-type]


def test_inference_mode_cannot_be_lifted() -> None:
    """Whoever asks for recording inside is told."""
    with autograd.inference_mode(), autograd.no_grad():
        assert type(a_leaf() * 2.0) is aiodev.Array
        for guard in (autograd.enable_grad(), autograd.set_grad_enabled(True)):
            with pytest.raises(RuntimeError, match="inference_mode"), guard:
                pass


async def test_modes_do_not_leak_between_tasks() -> None:
    """A task inherits the mode, and changes its own only."""
    seen: dict[str, bool] = {}
    entered, looked = anyio.Event(), anyio.Event()

    async def off() -> None:
        with autograd.no_grad():
            entered.set()
            await looked.wait()
            seen["inside"] = autograd.is_grad_enabled()
            async with anyio.create_task_group() as inner:
                inner.start_soon(child)

    async def child() -> None:
        seen["child"] = autograd.is_grad_enabled()

    async def other() -> None:
        await entered.wait()
        seen["beside"] = autograd.is_grad_enabled()
        looked.set()

    async with anyio.create_task_group() as group:
        group.start_soon(off)
        group.start_soon(other)
    assert seen == {"inside": False, "child": False, "beside": True}


async def test_guards_decorate_functions_and_coroutine_functions() -> None:
    """The mode holds while they run, over awaits, too."""

    @autograd.no_grad()
    def plain() -> bool:
        return autograd.is_grad_enabled()

    @autograd.no_grad()
    async def coroutine() -> bool:
        await anyio.lowlevel.checkpoint()
        return autograd.is_grad_enabled()

    assert plain() is False and await coroutine() is False
    assert autograd.is_grad_enabled()


async def test_guards_decorate_objects_that_are_called() -> None:
    """As what their ``__call__`` is."""

    class Called:
        async def __call__(self) -> bool:
            await anyio.lowlevel.checkpoint()
            return autograd.is_grad_enabled()

    assert await autograd.no_grad()(Called())() is False


async def test_guards_decorate_generators() -> None:
    """The mode holds for the body at each of its steps, and not for who iterates; what is sent and thrown arrives."""
    seen = []

    @autograd.no_grad()
    def plain() -> Any:
        try:
            seen.append((yield autograd.is_grad_enabled()))
            with pytest.raises(KeyError):
                yield autograd.is_grad_enabled()
            yield autograd.is_grad_enabled()
        finally:
            seen.append(autograd.is_grad_enabled())
        return "end"

    steps = plain()
    assert inspect.isgeneratorfunction(plain) and next(steps) is False and autograd.is_grad_enabled()
    assert steps.send("given") is False and steps.throw(KeyError()) is False and autograd.is_grad_enabled()
    with pytest.raises(StopIteration, match="end"):
        next(steps)
    left = plain()
    next(left)
    left.close()
    assert seen == ["given", False, False] and autograd.is_grad_enabled()


async def test_guards_decorate_asynchronous_generators() -> None:
    """As those that are not."""
    seen = []

    @autograd.no_grad()
    async def asynchronous() -> Any:
        try:
            await anyio.lowlevel.checkpoint()
            seen.append((yield autograd.is_grad_enabled()))
            with pytest.raises(KeyError):
                yield autograd.is_grad_enabled()
            yield autograd.is_grad_enabled()
        finally:
            await anyio.lowlevel.checkpoint()
            seen.append(autograd.is_grad_enabled())

    steps = asynchronous()
    assert inspect.isasyncgenfunction(asynchronous) and await anext(steps) is False and autograd.is_grad_enabled()
    assert await steps.asend("given") is False and await steps.athrow(KeyError()) is False and autograd.is_grad_enabled()
    with pytest.raises(StopAsyncIteration):
        await anext(steps)
    left = asynchronous()
    await anext(left)
    await left.aclose()
    assert seen == ["given", False, False] and autograd.is_grad_enabled()


async def test_a_pass_computes_without_recording() -> None:
    """Gradients are plain arrays, unless they are to be differentiated; the mode is as before when it is over."""
    x = a_leaf()
    await (x * x).sum().backward()
    assert type(x.grad) is aiodev.Array
    x.grad = None
    await (x * x).sum().backward(create_graph=True)
    assert x.grad.requires_grad and autograd.is_grad_enabled()


def test_guards_left_out_of_order_are_named() -> None:
    """As those of streams are."""
    first, second = autograd.no_grad(), autograd.enable_grad()
    first.__enter__()
    second.__enter__()
    with pytest.raises(RuntimeError, match="innermost"):
        first.__exit__()
    second.__exit__()
    first.__exit__()

"""The engine: order, yielding, failures, cancellation, several passes at once."""

from __future__ import annotations

import asyncio
import gc
import itertools
import subprocess
import sys
import threading
import weakref
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
from selection import examples

import aiodev
import aiodev.kernels as kernels
from aiodev import autograd
from aiodev._autograd import disposal, engine
from aiodev._core.waiting import fairness

pytestmark = pytest.mark.anyio


def a_leaf(*values: float) -> Any:
    return autograd.Variable(aiodev.asarray(list(values) or [1.0, 2.0], device="cpu"))


class Failing(autograd.Function):
    """The identity, whose backward raises."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        raise ValueError("no gradient today")


async def test_a_pass_adds_to_what_a_leaf_has() -> None:
    """Two passes are twice the gradient, and the first sum is not written to."""
    x = a_leaf()
    await (x * x).sum().backward()
    first = x.grad
    await (x * x).sum().backward()
    assert await x.grad.tolist() == [4.0, 8.0]
    assert await first.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("shared", [False, True])
async def test_two_passes_over_one_graph(shared: bool) -> None:
    """Where neither retains it the first goes on, and the other learns that the graph is released."""
    x = a_leaf()
    y = x
    for _ in range(3000):  # long enough for both to have turns
        y = y * 1.0
    first = y.sum()
    second = first if shared else (y * 2.0).sum()
    before, found = aiodev.current_stream("cpu"), list[BaseException | None]()

    async def go(loss: Any) -> None:
        try:
            await loss.backward()
            found.append(None)
        except autograd.GradientError as error:
            found.append(error.__cause__)

    async with anyio.create_task_group() as group:
        group.start_soon(go, first)
        group.start_soon(go, second)
    (failed,) = filter(None, found)
    assert "retain_graph=True keeps a graph" in str(failed) and len(found) == 2
    assert await x.grad.tolist() in ([1.0, 1.0], [2.0, 2.0]) and aiodev.current_stream("cpu") is before


async def test_a_graph_is_released() -> None:
    """A second pass says so, and how to keep a graph."""
    x = a_leaf()
    loss = (x * x).sum()
    await loss.backward()
    with pytest.raises(autograd.GradientError, match="retain_graph=True"):
        await loss.backward()


async def test_a_graph_that_is_retained() -> None:
    """It can be gone through again."""
    x = a_leaf()
    loss = (x * x).sum()
    await loss.backward(retain_graph=True)
    await loss.backward()
    assert await x.grad.tolist() == [4.0, 8.0]


async def test_a_pass_releases_what_nodes_kept() -> None:
    """Memory that is kept for gradients is free when the pass is over, though the result is still there."""
    x = a_leaf()
    y = kernels.exp(x)
    buffer = weakref.ref(y._buffer)
    loss = y.sum()
    del y
    assert buffer() is not None
    await loss.backward()
    assert buffer() is None


async def test_a_failing_node_is_named() -> None:
    """The error has its name, the line of its forward call, and the cause; every gradient stays as it was."""
    x, w = a_leaf(), a_leaf()
    y = (w * Failing.apply(x)).sum()
    with pytest.raises(autograd.GradientError) as caught:
        await y.backward()
    assert caught.value.node == "Failing"
    assert caught.value.called_at is not None and "test_engine.py" in caught.value.called_at
    assert isinstance(caught.value.__cause__, ValueError)
    assert "no gradient today" in str(caught.value)
    assert x.grad is None and w.grad is None


async def test_a_failure_releases_everything() -> None:
    """Also what the nodes behind the failing one keep."""
    x = a_leaf()
    kept = kernels.exp(x)
    buffer = weakref.ref(kept._buffer)
    loss = Failing.apply(kept).sum()
    del kept
    with pytest.raises(autograd.GradientError):
        await loss.backward()
    gc.collect()
    assert buffer() is None


async def test_a_long_graph_neither_recurses_nor_holds_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20,000 nodes, with a clock that says that every look is a period later: others have as many turns."""
    x = a_leaf()
    y = x
    for _ in range(20_000):
        y = y + 1.0
    loss = y.sum()
    del y
    now = 0

    def clock() -> int:
        nonlocal now
        now += fairness.PERIOD_NS
        return now

    monkeypatch.setattr(fairness, "clock", clock)
    turns, is_over = 0, False

    async def count() -> None:
        nonlocal turns
        while not is_over:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(count)
        await loss.backward()
        is_over = True
    assert turns > 20_000 // 8
    assert await x.grad.tolist() == [1.0, 1.0]


async def test_a_long_graph_is_dropped_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 5,000 nodes, with a clock that says that every look is a period later: each turn of the loop drops some of them."""
    y: Any = a_leaf()
    nodes = []
    for _ in range(5000):
        y = y * 1.0
        nodes.append(weakref.ref(y.grad_fn))
    now = 0

    def clock() -> int:
        nonlocal now
        now += fairness.PERIOD_NS
        return now

    portions = []
    sweep = disposal._sweep

    def counted() -> None:
        before = sum(one() is not None for one in nodes)
        sweep()
        portions.append(before - sum(one() is not None for one in nodes))

    monkeypatch.setattr(fairness, "clock", clock)
    monkeypatch.setattr(disposal, "_sweep", counted)
    del y
    assert len(portions) == 1
    while nodes[0]() is not None:
        await anyio.lowlevel.checkpoint()
    assert max(portions) <= disposal.PIECES_A_LOOK + 1 and len(portions) >= len(nodes) // (disposal.PIECES_A_LOOK + 1)


def test_a_long_graph_is_dropped_where_no_loop_runs() -> None:
    """At once, and nothing recurses."""
    x = a_leaf()
    y = x
    for _ in range(20_000):
        y = y * 1.0
    last = weakref.ref(y.grad_fn.next_functions[0])
    del y
    assert last() is None


async def test_what_a_closed_loop_left_is_dropped_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes whose turn never came go with those that die later."""
    monkeypatch.setattr(fairness, "clock", itertools.count(0, fairness.PERIOD_NS).__next__)
    found = []

    async def leave_some() -> None:
        y: Any = a_leaf()
        for _ in range(5000):
            y = y * 1.0
            found.append(weakref.ref(y.grad_fn))
        del y

    def run() -> None:
        asyncio.run(leave_some())
        assert any(one() is not None for one in found)
        x = a_leaf()
        y = x * 1.0
        del y
        assert not any(one() is not None for one in found)

    thread = threading.Thread(target=run)
    thread.start()
    await anyio.to_thread.run_sync(thread.join)
    assert not any(one() is not None for one in found)


@pytest.mark.parametrize("at", range(3))
async def test_cancellation_leaves_gradients_as_they_were(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the pass yields, nothing is stored before its end; the leaf takes part in the next pass."""
    now = 0

    def clock() -> int:
        nonlocal now
        now += fairness.PERIOD_NS
        return now

    x = a_leaf()
    y = x
    for _ in range(200):
        y = y + 1.0
    loss = y.sum()
    monkeypatch.setattr(fairness, "clock", clock)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(loss.backward)
            for _ in range(1 + 4 * at):
                await anyio.lowlevel.checkpoint()
            scope.cancel()
    monkeypatch.undo()
    assert x.grad is None
    await (x * 2.0).sum().backward()
    assert await x.grad.tolist() == [2.0, 2.0]


def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a clock that says that every look is a period later."""
    monkeypatch.setattr(fairness, "clock", itertools.count(0, fairness.PERIOD_NS).__next__)


async def longest_stretch(work: Any) -> int:
    """The most operations that a coroutine submits to the current stream between two turns of others."""
    timeline = aiodev.current_stream("cpu").timeline
    seen, is_over = [timeline.submitted], False

    async def count() -> None:
        while not is_over:
            seen.append(timeline.submitted)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(count)
        await work
        is_over = True
    return int(np.diff([*seen, timeline.submitted]).max())


@pytest.mark.parametrize("width", [examples(10_000)])
async def test_many_leaves_do_not_hold_the_loop(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the copies that they get nor the sums with what they have are submitted without turns in between."""
    async with aiodev.Stream("cpu"):
        leaves = [a_leaf(1.0) for _ in range(width)]
        one = aiodev.ones(width, dtype="float64", device="cpu")
        for _ in range(2):
            result = kernels.concat(leaves)  # whose gradient is cut into views, of which each leaf gets a copy
            hurried(monkeypatch)
            assert await longest_stretch(autograd.backward(result, one)) <= 32
            monkeypatch.undo()
        assert [await leaves[place].grad.tolist() for place in (0, -1)] == [[2.0], [2.0]]


@pytest.mark.parametrize("width", [examples(10_000)])
async def test_many_roots_do_not_hold_the_loop(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradients that they begin with are made with turns in between."""
    async with aiodev.Stream("cpu"):
        leaf = a_leaf(1.0)
        roots = [leaf * 2.0 for _ in range(width)]
        hurried(monkeypatch)
        assert await longest_stretch(autograd.backward(roots)) <= 32
        assert await leaf.grad.tolist() == [2.0 * width]


@pytest.mark.parametrize("at", range(0, 80, 8))
async def test_cancellation_while_many_leaves_are_stored(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either all of them have the sum, or all have what they had."""
    leaves = [a_leaf(1.0) for _ in range(100)]
    await autograd.backward(kernels.concat(leaves), aiodev.ones(100, dtype="float64", device="cpu"))
    before = [leaf.grad for leaf in leaves]
    result = kernels.concat(leaves).sum()
    hurried(monkeypatch)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(result.backward)
            for _ in range(at):
                await anyio.lowlevel.checkpoint()
            scope.cancel()
    monkeypatch.undo()
    assert {leaf.grad is one for leaf, one in zip(leaves, before, strict=True)} in ({True}, {False})


async def test_passes_that_store_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that take turns while they make the sums, the later one makes those again that the other has replaced."""
    leaves = [a_leaf(1.0) for _ in range(100)]
    factors = [aiodev.full(100, factor, dtype="float64", device="cpu") for factor in (1.0, 10.0, 100.0)]
    hurried(monkeypatch)
    async with anyio.create_task_group() as group:
        for factor in factors:
            group.start_soon(autograd.backward, kernels.concat(leaves), factor)
    assert [await leaf.grad.item() for leaf in leaves] == [111.0] * 100


async def test_tasks_add_to_one_leaf() -> None:
    """Passes of several tasks, on streams of their own, over one parameter: the sum is of all."""
    w = a_leaf(1.0, 1.0)

    async def work(factor: float) -> None:
        async with aiodev.Stream("cpu"):
            for _ in range(5):
                loss = (w * factor).sum()
                await anyio.lowlevel.checkpoint()
                await loss.backward()

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(work, 1.0 + number)
    assert await w.grad.tolist() == [50.0, 50.0]


async def test_threads_add_to_one_leaf() -> None:
    """And passes of loops in several threads."""
    w = a_leaf(1.0, 1.0)

    async def work() -> None:
        async with aiodev.Stream("cpu"):
            for _ in range(50):
                await (w * 2.0).sum().backward()

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(anyio.to_thread.run_sync, anyio.run, work)
    assert await w.grad.tolist() == [300.0, 300.0]


async def test_results_that_share_a_part_of_the_graph() -> None:
    """One pass from several results goes through it once."""
    x = a_leaf()
    y = x * x
    await autograd.backward([y.sum(), (3.0 * y).sum()])
    assert await x.grad.tolist() == [8.0, 16.0]


async def test_grad_computes_only_what_leads_to_the_inputs() -> None:
    """A node on another way does not run, and no leaf's gradient is stored."""
    x, w = a_leaf(), a_leaf()
    loss = (x * 2.0 + Failing.apply(w)).sum()
    (found,) = await autograd.grad(loss, x)
    assert await found.tolist() == [2.0, 2.0]
    assert x.grad is None and w.grad is None


async def test_grad_of_a_result_in_between() -> None:
    """An input need not be a leaf."""
    x = a_leaf()
    y = x * x
    first, second = await autograd.grad((y * 3.0).sum(), [y, x])
    assert await first.tolist() == [3.0, 3.0]
    assert await second.tolist() == [6.0, 12.0]


async def test_grad_of_what_is_not_used() -> None:
    """It is an error, or None where that is allowed."""
    x, other = a_leaf(), a_leaf()
    loss = (x * x).sum()
    with pytest.raises(RuntimeError, match=r"inputs\[1\]"):
        await autograd.grad(loss, [x, other], retain_graph=True)
    assert (await autograd.grad(loss, [x, other], allow_unused=True))[1] is None


async def test_value_and_grad() -> None:
    """Of plain arrays, of one argument or several, of a function or a coroutine function."""
    x, y = (aiodev.asarray(values, device="cpu") for values in ([1.0, 2.0], [3.0, 4.0]))
    value, gradient = await autograd.value_and_grad(lambda x, y: (x * y).sum())(x, y)
    assert type(value) is type(gradient) is aiodev.Array
    assert await value.item() == 11.0 and await gradient.tolist() == [3.0, 4.0]

    async def function(x: Any, y: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return (x * x).sum()

    _, (first, second) = await autograd.value_and_grad(function, (0, 1))(x, y)
    assert await first.tolist() == [2.0, 4.0] and await second.tolist() == [0.0, 0.0]


async def test_second_derivatives() -> None:
    """A gradient that was computed by recorded operations is differentiated as any result."""
    x = a_leaf(3.0)
    (first,) = await autograd.grad((x * x * x).sum(), x, create_graph=True)
    (second,) = await autograd.grad(first.sum(), x, create_graph=True)
    (third,) = await autograd.grad(second.sum(), x)
    assert [await each.item() for each in (first, second, third)] == [27.0, 18.0, 6.0]


async def test_the_gradient_of_a_leaf_is_its_own() -> None:
    """Two leaves of a sum do not share one array, nor with who gave the gradient, nor is it a view that repeats an element."""
    x, y = a_leaf(), a_leaf()
    given = aiodev.ones(2, device="cpu")
    await (x + y).backward(given)
    await (x + y).sum().backward()
    assert len({x.grad._buffer, y.grad._buffer, given._buffer}) == 3
    x.grad = None
    await x.sum().backward()
    assert x.grad.writable and x.grad.strides == (8,)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda x: autograd.backward(x.detach()), RuntimeError),
        (lambda x: autograd.backward(3.0), TypeError),
        (lambda x: autograd.backward(x * 2.0), ValueError),
        (lambda x: autograd.backward([]), ValueError),
        (lambda x: autograd.backward(x * 2.0, aiodev.ones(3, device="cpu")), ValueError),
        (lambda x: autograd.backward((x * 2.0).sum(), create_graph=1), TypeError),
        (lambda x: autograd.grad((x * 2.0).sum(), aiodev.ones(3, device="cpu")), RuntimeError),
    ],
)
async def test_wrong_arguments(wrong: Any, error: type[Exception]) -> None:
    """They are named before anything is submitted."""
    with pytest.raises(error, match="backward|grad"):
        await wrong(a_leaf())


async def test_written_to_what_was_kept() -> None:
    """A change in place of what a gradient needs is an error that says so, of whatever view it was."""
    x = a_leaf()
    y = kernels.exp(x)
    loss = y.sum()
    with autograd.no_grad():
        y.detach()[0:1].copy_from(aiodev.ones(1, device="cpu"))
    with pytest.raises(autograd.GradientError, match="written to since"):
        await loss.backward()


async def test_written_to_what_no_gradient_needs() -> None:
    """It does not matter."""
    x = a_leaf()
    y = x + 1.0
    loss = y.sum()
    y.detach().copy_from(aiodev.ones(2, device="cpu"))
    await loss.backward()
    assert await x.grad.tolist() == [1.0, 1.0]


async def test_read_by_others_since_it_was_kept() -> None:
    """What only reads an array leaves its version."""
    x, m = a_leaf(), autograd.Variable(aiodev.ones((2, 2), device="cpu"))
    loss = (kernels.matmul(m, x) * x).sum() + kernels.softmax(x).sum()
    for other in (kernels.sum, kernels.max, kernels.mean, kernels.softmax, lambda x: kernels.matmul(m, x)):
        other(x.detach())
    await loss.backward()
    assert await x.grad.tolist() == pytest.approx([6.0, 6.0])


async def test_anomalies() -> None:
    """The pass stops at the node that makes NaN, and tells the stack of its forward call."""
    with autograd.detect_anomaly():
        x = a_leaf(-1.0)
        loss = kernels.sqrt(x).sum()
        with pytest.raises(autograd.GradientError) as caught:
            await loss.backward()
    assert caught.value.node == "sqrt"
    assert caught.value.stack is not None and "kernels.sqrt(x).sum()" in caught.value.stack


@pytest.mark.parametrize("times", [1, 2], ids=["first call", "call that is known"])
@pytest.mark.parametrize("operate", [
    lambda x: x / 0.0 * 0.0,
    lambda x: kernels.divide(x, 0.0) * 0.0,
    lambda x: kernels.sqrt(x * 0.0) * 0.0,
    lambda x: (x / 0.0).reshape(2) * 0.0,
], ids=["operator", "function", "root", "view"])  # fmt: skip
async def test_stacks_of_anomalies_end_at_the_programs_line(operate: Any, times: int) -> None:
    """And not inside of the library."""
    with autograd.detect_anomaly():
        for _ in range(times):
            loss = operate(a_leaf(-1.0, 1.0)).sum()
        with pytest.raises(autograd.GradientError) as caught:
            await loss.backward()
    *_, last = [line for line in str(caught.value.stack).splitlines() if line.startswith("  File")]
    assert "test_engine.py" in last


async def test_a_kernels_error_arrives_at_who_waits() -> None:
    """The pass submits; what fails on the device is told where the gradient is awaited."""

    @aiodev.kernel
    def fail(i: int, x: Any) -> None:
        x[i] = 0.0
        raise ValueError("bad element")

    class Fails(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            made = g * 1.0
            fail[1](made)
            return made

    async with aiodev.Stream("cpu"):
        x = a_leaf()
        await Fails.apply(x).sum().backward()
        with pytest.raises(aiodev.KernelError, match="bad element"):
            await x.grad.numpy()


async def test_a_long_graph_of_which_a_part_is_asked_for_does_not_hold_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """To find the nodes that lead to what is asked for takes turns, too; those beside them do not run."""
    x, aside = a_leaf(), a_leaf()
    y, other = x, aside
    for _ in range(6_000):
        y, other = y + 1.0, other + 1.0
    loss = (y + other).sum()
    now, looks = 0, 0

    def clock() -> int:
        nonlocal now, looks
        looks += 1
        now += fairness.PERIOD_NS
        return now

    monkeypatch.setattr(fairness, "clock", clock)
    counting: list[int] = []
    restrict = engine.Pass._restrict

    async def counted(self: Any, asked: Any) -> None:
        before = looks
        await restrict(self, asked)
        counting.append(looks - before)

    monkeypatch.setattr(engine.Pass, "_restrict", counted)
    (gradient,) = await autograd.grad(loss, [x])
    assert await gradient.tolist() == [1.0, 1.0]
    assert counting[0] > 12_000 // 64
    assert aside.grad is None


async def test_several_results_of_one_operation_as_roots() -> None:
    """The node runs once, when the gradients of all of them are there."""
    x = autograd.Variable(aiodev.asarray([[2.0, 1.0], [1.0, 3.0]], device="cpu"))
    values, vectors = kernels.linalg.eigh(x)
    ones = aiodev.ones((2, 2), device="cpu")
    (both,) = await autograd.grad([values, vectors], [x], [ones[0], ones], retain_graph=True)
    (one,) = await autograd.grad([values], [x], [ones[0]], retain_graph=True)
    (other,) = await autograd.grad([vectors], [x], [ones])
    assert np.allclose(await both.numpy(), await one.numpy() + await other.numpy())


def test_a_pass_imports_nothing() -> None:
    """Not even where it yields for the first time, which would hold the loop for as long as that takes."""
    program = """
import asyncio, sys
import aiodev
from aiodev import autograd
from aiodev._autograd import disposal, engine
from aiodev._core.waiting import fairness

async def main():
    async with aiodev.Stream("cpu"):
        x = autograd.Variable(aiodev.ones(2))
        await (x + 1.0).sum().backward()
        y = x
        for _ in range(200):
            y = y + 1.0
        before = set(sys.modules)
        fairness.clock = iter(range(0, 1 << 60, fairness.PERIOD_NS)).__next__
        await y.sum().backward()
        print(sorted(set(sys.modules) - before))

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "[]"

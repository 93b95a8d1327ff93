"""Passes that are remembered: what they submit is what the engine would, and whatever may be otherwise is left to that."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import anyio.lowlevel
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from selection import examples

import aiodev
import aiodev.kernels as kernels
from aiodev import autograd, profiler, testing
from aiodev._autograd import backward as entry, remembered
from aiodev._core.errors import OutOfMemoryError
from aiodev._core.waiting import fairness

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(remembered.settings.debug, reason="debug mode leaves all passes to the engine"),
]

#: Passes until one is remembered at the latest: kernels are awaited after each.
MOST = 40


class Engine:
    """Counts the passes of the engine."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        run = entry.Pass.run

        async def counted(own: Any) -> Any:
            self.count += 1
            return await run(own)

        patch.setattr(entry.Pass, "run", counted)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setattr(remembered, "_remembered", {})
    return Engine(monkeypatch)


def a_leaf(values: Any = (1.0, 2.0)) -> Any:
    return autograd.Variable(aiodev.asarray(np.asarray(values, "f8"), device="cpu"))


async def gradients(loss_of: Callable[..., Any], *leaves: Any) -> list[Any]:
    """Of leaves, by a pass of its own."""
    for leaf in leaves:
        leaf.grad = None
    await loss_of(*leaves).backward()
    return [None if leaf.grad is None else await leaf.grad.tolist() for leaf in leaves]


async def remember(engine: Engine, loss_of: Callable[..., Any], *leaves: Any) -> None:
    """Go backward until the engine is not needed."""
    for _ in range(MOST):
        before = engine.count
        await gradients(loss_of, *leaves)
        if engine.count == before:
            return
    pytest.fail("it is not remembered")


async def test_a_pass_that_was_seen_before_needs_no_engine(engine: Engine) -> None:
    """Its gradients are those of the values that are there now, and no event is recorded."""

    def loss_of(w: Any, b: Any) -> Any:
        return (kernels.tanh(w * b + w) * w).sum()

    await remember(engine, loss_of, a_leaf(), a_leaf())
    count, events = engine.count, profiler.counters()["events_recorded"]
    w, b = np.array([0.5, -1.0]), np.array([2.0, 0.25])
    found = await gradients(loss_of, a_leaf(w), a_leaf(b))
    t = np.tanh(w * b + w)
    assert np.allclose(found[0], t + w * (1 - t**2) * (b + 1)) and np.allclose(found[1], w * (1 - t**2) * w)
    assert engine.count == count and profiler.counters()["events_recorded"] == events


async def test_a_gradient_to_begin_with(engine: Engine) -> None:
    """It is another one in each pass, and is not stored."""
    for factor in range(MOST):
        x, g = a_leaf(), aiodev.asarray([float(factor), 1.0], device="cpu")
        count = engine.count
        await autograd.backward(x * 3.0, g)
        assert await x.grad.tolist() == [3.0 * factor, 3.0]
        assert x.grad._buffer is not g._buffer
        if engine.count == count:
            break
    else:
        pytest.fail("it is not remembered")


async def test_a_gradient_of_a_part_is_remembered(engine: Engine) -> None:
    """It is zeros, in a part of which something is written: of other values each time."""
    await remember(engine, lambda x: (x[1:3] * x[::2] * 2.0).sum() + x[1] * x[1], a_leaf((1.0, 2.0, 3.0, 4.0)))
    count = engine.count
    for values in ((5.0, 1.0, -2.0, 3.0), (0.5, 4.0, 1.0, -1.0)):
        a, b, c, _ = values
        (found,) = await gradients(lambda x: (x[1:3] * x[::2] * 2.0).sum() + x[1] * x[1], a_leaf(values))
        assert found == [2 * b, 2 * a + 2 * b, 4 * c, 0.0]
    assert engine.count == count


async def test_passes_add_to_what_a_leaf_has(engine: Engine) -> None:
    """The sum is another array, as ever."""
    x = a_leaf()
    await remember(engine, lambda x: (x * x).sum(), x)
    first, count = x.grad, engine.count
    await (x * x).sum().backward()
    assert await x.grad.tolist() == [4.0, 8.0] and await first.tolist() == [2.0, 4.0]
    assert engine.count == count


async def test_one_array_or_two_are_told_apart(engine: Engine) -> None:
    """``x * x``, ``x * y`` and what is between them have graphs of one shape, and are not taken for each other."""

    def leaf_and_array(x: Any, other: Any) -> Any:
        return (x * other).sum()

    shared = a_leaf()
    x, y = a_leaf((3.0, 4.0)), aiodev.asarray([5.0, 6.0], device="cpu")
    await remember(engine, lambda x: leaf_and_array(x, x.detach()), shared)
    assert await gradients(lambda x: leaf_and_array(x, y), x) == [[5.0, 6.0]]
    await remember(engine, lambda x: leaf_and_array(x, y), x)
    assert await gradients(lambda x: leaf_and_array(x, x.detach()), x) == [[3.0, 4.0]]
    assert await gradients(lambda x: (x * x).sum(), x) == [[6.0, 8.0]]
    z = a_leaf((5.0, 6.0))
    await remember(engine, lambda x, z: (x * z).sum(), x, z)
    assert await gradients(lambda x: (x * x).sum(), x) == [[6.0, 8.0]]


async def test_views_of_one_buffer_keep_their_distance(engine: Engine) -> None:
    """Parts of one array, and parts of two, and other parts."""
    whole = aiodev.arange(8, dtype="float64", device="cpu")
    other = aiodev.arange(8, dtype="float64", device="cpu") * 10.0

    def loss_of(a: Any, b: Any) -> Callable[[Any], Any]:
        return lambda x: (x * a * b).sum()

    await remember(engine, loss_of(whole[0:2], whole[4:6]), a_leaf())
    for a, b in ((whole[0:2], whole[4:6]), (whole[2:4], whole[6:8]), (whole[0:2], whole[2:4]), (whole[4:6], other[0:2])):
        expected = (await a.numpy()) * (await b.numpy())
        assert await gradients(loss_of(a, b), a_leaf()) == [expected.tolist()]


async def test_what_the_host_writes_meanwhile_is_a_constant(engine: Engine) -> None:
    """Places that a gradient is made of: the memory of them serves no one else."""

    def loss_of(x: Any, indices: Any) -> Any:
        return kernels.take_along_axis(x, indices, axis=1).sum()

    x, first = a_leaf(np.ones((2, 3))), aiodev.asarray([[0], [1]], device="cpu")
    await remember(engine, lambda x: loss_of(x, first), x)
    kept = [aiodev.asarray(np.full(6, 99), device="cpu") for _ in range(20)]
    second, count = aiodev.asarray([[2], [0]], device="cpu"), engine.count
    assert await gradients(lambda x: loss_of(x, second), x) == [[[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]]
    assert engine.count == count and len(kept) == 20


async def test_numbers_are_compared_by_value(engine: Engine) -> None:
    """A factor that changes, its sign where it is zero included."""
    x = a_leaf()
    await remember(engine, lambda x: (x * 2.0).sum(), x)
    assert await gradients(lambda x: (x * 3.0).sum(), x) == [[3.0, 3.0]]
    await remember(engine, lambda x: (x * 0.0).sum(), x)
    (found,) = await gradients(lambda x: (x * -0.0).sum(), x)
    assert np.signbit(found).all()


async def test_shapes_and_indices_are_told_apart(engine: Engine) -> None:
    """Of views, whose functions know more than their results show."""
    x = a_leaf(np.arange(6.0).reshape(2, 3))
    for index in ((0,), (1,), (slice(None), 1), (slice(0, 1), slice(0, 2))):
        await remember(engine, lambda x, index=index: (x[index] * 2.0).sum(), x)
    for index in ((1,), (0,), (slice(None), 2), (slice(1, 2), slice(1, 3))):
        expected = np.zeros((2, 3))
        expected[index] = 2.0
        assert await gradients(lambda x, index=index: (x[index] * 2.0).sum(), x) == [expected.tolist()]
    await remember(engine, lambda x: (x.reshape(3, 2) * kernels.tanh(x).T).sum(), x)
    with_engine = await gradients(lambda x: (x.reshape(3, 2) * kernels.tanh(x).T).sum() + 0.0 * x[0, 0], x)
    assert np.allclose((await gradients(lambda x: (x.reshape(3, 2) * kernels.tanh(x).T).sum(), x))[0], with_engine[0])


@pytest.mark.parametrize("is_busy", [False, True], ids=["other tasks rest", "other tasks submit"])
async def test_a_pass_that_yields(engine: Engine, monkeypatch: pytest.MonkeyPatch, is_busy: bool) -> None:
    """What others submit to the stream meanwhile is none of it; whether notes are taken then or not, gradients are right."""
    now = 0

    def clock() -> int:
        nonlocal now
        now += fairness.PERIOD_NS
        return now

    def loss_of(x: Any) -> Any:
        y = x
        for _ in range(40):  # several looks at the clock: between two turns of this task, others have one
            y = kernels.tanh(y)
        return y.sum()

    x, other, is_over = a_leaf(), aiodev.ones(3, device="cpu"), False
    (expected,) = await gradients(loss_of, x)

    async def submit() -> None:
        nonlocal other
        while not is_over:
            if is_busy:
                other = other * 1.0
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(submit)
        with monkeypatch.context() as patch:
            patch.setattr(fairness, "clock", clock)
            for _ in range(6):
                assert await gradients(loss_of, x) == [expected]
        if is_busy:
            assert not any(one._programs for one in remembered._remembered.values())
        is_over = True
    await remember(engine, loss_of, x)
    assert await gradients(loss_of, x) == [expected]


async def test_hooks_take_the_engine(engine: Engine) -> None:
    """Those of results, of nodes, of leaves; and retained gradients."""

    def loss_of(x: Any) -> Any:
        return (x * x).sum()

    x = a_leaf()
    await remember(engine, loss_of, x)
    with x.register_hook(lambda g: 10.0 * g):
        assert await gradients(loss_of, x) == [[20.0, 40.0]]
    seen = []
    with x.register_post_accumulate_grad_hook(seen.append):
        await gradients(loss_of, x)
    assert seen == [x] or seen[0] is x
    loss = loss_of(x)
    loss.grad_fn.register_prehook(lambda g: (3.0 * g[0],))
    x.grad = None
    await loss.backward()
    assert await x.grad.tolist() == [6.0, 12.0]
    y = x * x
    y.retain_grad()
    await y.sum().backward()
    assert await y.grad.tolist() == [1.0, 1.0]


async def test_a_users_gradient_is_called_in_each_pass(engine: Engine) -> None:
    """It may be another one each time, for all that is known."""
    calls = 0

    @aiodev.operation(reads=["x"], writes="out")
    def keep(call: aiodev.Call, x: Any, /, *, out: Any = None) -> Any:
        out = call.out(x.shape, x.dtype)
        kernels.add(x, 0.0, out=out)
        return out

    def rule(g: Any) -> Any:
        nonlocal calls
        calls += 1
        return g * float(calls)

    keep.operation.gradient(x=rule)
    x = a_leaf()
    found = [await gradients(lambda x: keep(x).sum(), x) for _ in range(6)]
    assert found == [[[float(k), float(k)]] for k in range(1, 7)] and engine.count == 6


async def test_a_graph_is_released_or_retained(engine: Engine) -> None:
    """As by the engine."""
    x = a_leaf()
    await remember(engine, lambda x: (x * x).sum(), x)
    loss, count = (x * x).sum(), engine.count
    x.grad = None
    for times in (1.0, 2.0):
        await loss.backward(retain_graph=True)
        assert await x.grad.tolist() == [2.0 * times, 4.0 * times]
    await loss.backward()
    assert engine.count == count
    with pytest.raises(autograd.GradientError, match="retain_graph=True"):
        await loss.backward()


async def test_a_part_that_another_pass_has_released(engine: Engine) -> None:
    """The engine names it, and nothing is submitted."""
    x = a_leaf()

    def loss_of(x: Any) -> tuple[Any, Any]:
        y = kernels.tanh(x)
        z = y * 2.0
        return z, (z * y).sum()

    await remember(engine, lambda x: loss_of(x)[1], x)
    z, loss = loss_of(x)
    await z.sum().backward()
    with pytest.raises(autograd.GradientError, match="retain_graph=True"):
        await loss.backward()


async def test_written_to_what_was_kept(engine: Engine) -> None:
    """The pass fails, whoever would have run it."""
    x, y = a_leaf(), aiodev.ones(2, device="cpu")
    await remember(engine, lambda x: (x * y).sum(), x)
    loss = (x * y).sum()
    y += 1.0
    with pytest.raises(autograd.GradientError, match="multiply"):
        await loss.backward()


@pytest.mark.parametrize("is_remembered", [False, True])
async def test_what_was_kept_is_freed(engine: Engine, is_remembered: bool) -> None:
    """The pass fails and says so, whether notes would be taken of it, or it is remembered."""
    x, y = a_leaf(), aiodev.ones(2, device="cpu")
    if is_remembered:
        await remember(engine, lambda x: (x * y).sum(), x)
    else:
        await gradients(lambda x: (x * y).sum(), x)
    loss = (x * y).sum()
    y.free()
    with pytest.raises(autograd.GradientError, match=r"multiply.*freed"):
        await loss.backward()


async def test_a_pass_on_two_streams_takes_the_engine(engine: Engine) -> None:
    """A node elsewhere, and a caller elsewhere."""
    x = a_leaf()
    await remember(engine, lambda x: (x * x).sum(), x)
    side = aiodev.Stream("cpu")
    with side:
        y = x * x
    aiodev.current_stream("cpu").wait_stream(side)
    loss, count = y.sum(), engine.count
    await loss.backward()
    with side:
        other = (x * x).sum()
    await other.backward()
    assert engine.count == count + 2


async def test_a_pass_on_another_stream_is_remembered_too(engine: Engine) -> None:
    """What is submitted does not depend on where; it runs behind what that stream holds."""
    x = a_leaf()
    await remember(engine, lambda x: (x * x).sum(), x)
    async with aiodev.Stream("cpu") as stream:
        x, count = a_leaf((3.0,) * 2), engine.count
        loss = (x * x).sum()
        latch = testing.Latch(stream)
        await loss.backward()
        assert engine.count == count and not x.grad._buffer.is_written()
        latch.release()
        assert await x.grad.tolist() == [6.0, 6.0]


async def test_memory_that_is_not_to_be_had(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine has the pass then, which frees on its way."""
    x = a_leaf()
    await remember(engine, lambda x: (x * x).sum(), x)

    def refuse(*args: Any) -> Any:
        raise OutOfMemoryError("cpu:0", 1, allocated=0, reserved=0, free=0, total=0)

    monkeypatch.setattr(remembered.Program, "submit", refuse)
    assert await gradients(lambda x: (x * x).sum(), x) == [[2.0, 4.0]]


async def test_a_refused_submission_names_the_node(engine: Engine) -> None:
    """With what was called, and where; the graph is released, and gradients are as they were."""
    async with aiodev.Stream("cpu") as stream:
        x = a_leaf()
        await remember(engine, lambda x: (x * x).sum(), x)
        x.grad, loss = None, (x * x).sum()
        launch = stream._launch
        try:
            stream._launch = lambda *args: (_ for _ in ()).throw(RuntimeError("full"))
            with pytest.raises(autograd.GradientError, match="test_remembered") as caught:
                await loss.backward()
        finally:
            stream._launch = launch
        assert str(caught.value.__cause__) == "full" and x.grad is None and loss.grad_fn.is_released


async def test_an_interrupted_pass_holds_what_it_uses(engine: Engine) -> None:
    """Ctrl-C behind a submission: what is queued reads memory that nobody has dropped from it."""
    async with aiodev.Stream("cpu") as stream:
        x, y = a_leaf(), aiodev.ones(2, device="cpu")
        await remember(engine, lambda x: (x * y).sum(), x)
        x.grad, loss = None, (x * y).sum()
        latch, launch = testing.Latch(stream), stream._launch

        def interrupted(*args: Any) -> int:
            launch(*args)
            raise KeyboardInterrupt

        stream._launch = interrupted
        try:
            with pytest.raises(KeyboardInterrupt):
                await loss.backward()
        finally:
            stream._launch = launch
        assert y._buffer.pending() and x.grad is None and loss.grad_fn.is_released
        latch.release()


async def test_a_kernels_error_arrives_at_who_waits(engine: Engine) -> None:
    """A launch ahead of the pass that fails: the gradient is none."""

    @aiodev.kernel
    def fail(i: int, x: Any) -> None:
        raise ValueError("bad")

    async with aiodev.Stream("cpu"):
        x = a_leaf()
        await remember(engine, lambda x: (x * x).sum(), x)
        x.grad, loss = None, (x * x).sum()
        fail[1](loss.detach())
        await loss.backward()
        with pytest.raises(aiodev.DependencyError):
            await x.grad.tolist()


async def test_memory_in_between_serves_again(engine: Engine) -> None:
    """A chain needs no more than two of its arrays at once; gradients of leaves have memory of their own."""
    x = a_leaf(np.ones(1000))

    def loss_of(x: Any) -> Any:
        y = x
        for _ in range(10):
            y = kernels.tanh(y)
        return y.sum()

    await remember(engine, loss_of, x)
    (known,) = [one for one in remembered._remembered.values() if one._programs]
    assert known._programs[0]._scratch < 3 * 8000 + 1000
    first = x.grad
    await gradients(loss_of, x)
    assert first._buffer is not x.grad._buffer and first._address != x.grad._address


async def test_structures_that_change_all_the_time_are_left_to_the_engine(engine: Engine) -> None:
    """Nothing is compared after a while; gradients are right all along."""
    for count in range(150):
        x, y = a_leaf(), None
        y = x
        for _ in range(1 + count % 40):
            y = y + 1.0
        x.grad = None
        await (y * y).sum().backward()
        assert await x.grad.tolist() == [2.0 * (2 + count % 40), 2.0 * (3 + count % 40)]
    (known,) = remembered._remembered.values()
    assert not known._programs and known._balance < 0


async def test_a_captured_pass_takes_the_engine(engine: Engine) -> None:
    """And what is remembered serves again behind it."""
    x = a_leaf()
    await remember(engine, lambda x: (x * x).sum(), x)
    count = engine.count
    x.grad = None
    async with aiodev.Stream("cpu"), aiodev.capture() as graph:
        await (x * x).sum().backward()
    await graph.replay()
    assert engine.count == count + 1 and await x.grad.tolist() == [2.0, 4.0]


async def test_what_differs_in_mode_takes_the_engine(engine: Engine) -> None:
    """Gradients that are to be differentiated, anomalies, gradients that are asked for, debug mode."""
    x = a_leaf()
    await remember(engine, lambda x: (x * x * x).sum(), x)
    count = engine.count
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remembered, "settings", dataclasses.replace(remembered.settings, debug=True))
        await gradients(lambda x: (x * x * x).sum(), x)
    with autograd.detect_anomaly():
        await gradients(lambda x: (x * x * x).sum(), x)
    (first,) = await autograd.grad((x * x * x).sum(), x, create_graph=True)
    (second,) = await autograd.grad(first.sum(), x)
    assert await second.tolist() == [6.0, 12.0] and engine.count == count + 4


class Step(NamedTuple):
    """One operation: of two values that were there before."""

    operation: str
    first: int
    second: int


def plain(x: Any) -> Any:
    return x.detach() if isinstance(x, autograd.Variable) else x


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "multiply": lambda x, y: x * y,
    "scale": lambda x, y: x * 0.5,
    "tanh": lambda x, y: kernels.tanh(x),
    "matmul": lambda x, y: x @ y,
    "turned": lambda x, y: x @ y.T,
    "row": lambda x, y: x + y[1],
    "mean": lambda x, y: x - y.mean(axis=0),
    "softmax": lambda x, y: kernels.softmax(x, axis=-1) * y,
    "joined": lambda x, y: kernels.concat([x[:1], y[1:]], axis=0),
    "chosen": lambda x, y: kernels.where(plain(x) > 0.0, x, y),
    "taken": lambda x, y: kernels.take_along_axis(x, kernels.argsort(plain(y), axis=1), axis=1),
    "reshaped": lambda x, y: x.reshape(9).reshape(3, 3) * y,
}
LEAVES, CONSTANTS = 2, 1


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    steps = []
    for number in range(draw(st.integers(1, 10))):
        places = st.integers(0, LEAVES + CONSTANTS + number - 1)
        steps.append(Step(draw(st.sampled_from(sorted(OPERATIONS))), draw(places), draw(places)))
    return steps


async def passes(steps: list[Step], seed: int, same: list[bool], is_remembered: bool) -> list[bytes]:
    """The gradients of several passes, each of other values; where ``same`` says so, of one array in place of two."""
    random = np.random.default_rng(seed)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remembered, "_remembered", {})
        if not is_remembered:
            patch.setattr(entry, "remembered_of", lambda *args: None)
        async with aiodev.Stream("cpu"):
            for own in same:
                hosts = [random.uniform(-1, 1, (3, 3)) for _ in range(LEAVES + CONSTANTS)]
                arrays = [aiodev.asarray(host) for host in hosts]
                leaves = [autograd.Variable(array) for array in arrays[:LEAVES]]
                if own:
                    leaves[1] = autograd.Variable(arrays[0])
                    arrays[2] = arrays[0]
                values: list[Any] = [*leaves, *arrays[LEAVES:]]
                for step in steps:
                    values.append(OPERATIONS[step.operation](values[step.first], values[step.second]))
                loss = (values[-1] * values[0]).sum()
                await loss.backward()
                found += [b"" if leaf.grad is None else (await leaf.grad.numpy()).tobytes() for leaf in leaves]
    return found


@settings(max_examples=examples(60), deadline=None)
@given(steps=programs(), seed=st.integers(0, 9), same=st.lists(st.booleans(), min_size=4, max_size=8))
def test_random_programs_are_to_the_bit_what_the_engine_gives(steps: list[Step], seed: int, same: list[bool]) -> None:
    """Whatever is one array in some passes, and two in others."""
    expected = asyncio.run(passes(steps, seed, same, False))
    assert asyncio.run(passes(steps, seed, same, True)) == expected

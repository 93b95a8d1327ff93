"""Training steps: forward, backward and update are captured as one graph, whose replays are the eager steps to the bit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from selection import examples
from variable_programs import LEAVES, STREAMS, Step, programs, run_forward

import aiodev
from aiodev import autograd, kernels, optim
from aiodev.testing import Latch

OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda parameters: optim.SGD(parameters, 0.1),
    "SGD, Nesterov": lambda parameters: optim.SGD(parameters, 0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda parameters: optim.Adam(parameters, 0.05, weight_decay=0.01),
    "AdamW": lambda parameters: optim.AdamW(parameters, 0.05),
}
SIZES = (3, 5, 4, 2)


class Model:
    """A perceptron, its data and its optimizer; equal ones at every call."""

    def __init__(self, device: str, make: Callable[[Any], optim.Optimizer] = OPTIMIZERS["SGD"]) -> None:
        random = np.random.default_rng(0)
        self.parameters = [
            autograd.Variable(aiodev.asarray(host.astype(np.float32), device=device))
            for inputs, outputs in zip(SIZES, SIZES[1:], strict=False)
            for host in (random.standard_normal((inputs, outputs)), np.zeros(outputs))
        ]
        self.optimizer = make(self.parameters)
        self.x = aiodev.asarray(random.standard_normal((8, SIZES[0])).astype(np.float32), device=device)
        self.y = aiodev.asarray(random.standard_normal((8, SIZES[-1])).astype(np.float32), device=device)

    def loss(self) -> Any:
        x, p = self.x, self.parameters
        for weight, bias in zip(p[:-2:2], p[1:-2:2], strict=True):
            x = kernels.tanh(x @ weight + bias)
        difference = x @ p[-2] + p[-1] - self.y
        return (difference * difference).mean()

    async def step(self) -> Any:
        self.optimizer.zero_grad()
        loss = self.loss()
        await loss.backward()
        self.optimizer.step()
        return loss

    async def state(self) -> list[np.ndarray[Any, Any]]:
        """Parameters, gradients, and what the optimizer keeps."""
        gradients = [one.grad for one in self.parameters if one.grad is not None]
        arrays = [*self.parameters, *gradients, *self.optimizer.state_dict()["state"].values()]
        return [await one.numpy() for one in arrays]


def assert_equal(found: list[np.ndarray[Any, Any]], expected: list[np.ndarray[Any, Any]]) -> None:
    """To the bit."""
    assert len(found) == len(expected)
    for own, other in zip(found, expected, strict=True):
        assert own.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", OPTIMIZERS)
async def test_replays_are_eager_steps(device: str, name: str) -> None:
    """Fifty of them leave the same loss, parameters, gradients and state of the optimizer, which counts on."""
    async with aiodev.Stream(device):
        eager, captured = Model(device, OPTIMIZERS[name]), Model(device, OPTIMIZERS[name])
        async with aiodev.capture() as graph:
            loss = await captured.step()
        for step in range(50):
            expected = await eager.step()
            graph.replay()
            if step % 10 == 9:
                assert await loss.item() == await expected.item()
        assert_equal(await captured.state(), await eager.state())


async def test_gradients_stay_where_they_are(device: str) -> None:
    """A leaf's gradient is the same memory at each replay; the step may come later, and not be captured."""
    async with aiodev.Stream(device):
        eager, captured = Model(device), Model(device)
        async with aiodev.capture() as graph:
            captured.optimizer.zero_grad()
            await captured.loss().backward()
        gradients = [one.grad for one in captured.parameters]
        for _ in range(3):
            await eager.step()
            graph.replay()
            captured.optimizer.step()
        assert all(one.grad is own for one, own in zip(captured.parameters, gradients, strict=True))
        assert_equal(await captured.state(), await eager.state())


async def test_gradients_are_those_of_the_last_replay(device: str) -> None:
    """Of several captures, and whatever leaves have had meanwhile, or have been left with at the end of the capture."""

    async def gradients(model: Model) -> Any:
        model.optimizer.zero_grad()
        loss = model.loss()
        await loss.backward()
        return loss

    async with aiodev.Stream(device):
        eager, captured = Model(device), Model(device)
        graphs = []
        rows = (8, 5)
        inputs = [(captured.x[:count], captured.y[:count]) for count in rows]
        for captured.x, captured.y in inputs:
            async with aiodev.capture() as graph:
                await gradients(captured)
            graphs.append(graph)
        for place in (0, 0, 1, 0, 0, 1):
            if place == 0:
                captured.optimizer.zero_grad()  # which the captured step does as well
            captured.x, captured.y = eager.x, eager.y = inputs[place]
            await gradients(eager)
            graphs[place].replay()
            assert_equal(await captured.state(), await eager.state())
            for model in (eager, captured):
                model.optimizer.step()
                await gradients(model)
            assert_equal(await captured.state(), await eager.state())

        async with aiodev.capture() as graph:
            await captured.step()
            captured.optimizer.zero_grad()
        await gradients(captured)
        graph.replay()
        assert all(one.grad is None for one in captured.parameters)


async def test_a_gradient_that_replays_cannot_add_to_is_refused(device: str) -> None:
    """Since what they add to is not the leaf's any more."""
    async with aiodev.Stream(device):
        captured = Model(device)
        await captured.loss().backward()
        async with aiodev.capture() as graph:
            await captured.loss().backward()
        kept = [one.grad for one in captured.parameters]
        before = [await one.numpy() for one in kept]
        captured.optimizer.zero_grad()
        with pytest.raises(RuntimeError, match=r"replay: a leaf of the shape .* had a gradient .*set_to_none=False"):
            graph.replay()
        for one, gradient, value in zip(captured.parameters, kept, before, strict=True):
            assert (await gradient.numpy() == value).all()
            one.grad = gradient
        await graph.replay()
        assert_equal([await one.grad.numpy() for one in captured.parameters], [2 * value for value in before])


async def test_replays_add_to_gradients_of_before(device: str) -> None:
    """What leaves had before the capture is added to in place, so gradients are accumulated; zero_grad may keep the arrays."""
    async with aiodev.Stream(device):
        eager, captured = Model(device), Model(device)
        for one in captured.parameters:
            one.grad = aiodev.zeros(one.shape, one.dtype, device)
        gradients = [one.grad for one in captured.parameters]
        async with aiodev.capture() as graph:
            await captured.loss().backward()
        for _ in range(3):
            captured.optimizer.zero_grad(set_to_none=False)
            eager.optimizer.zero_grad()
            for _ in range(4):
                graph.replay()
                await eager.loss().backward()
            captured.optimizer.step()
            eager.optimizer.step()
        assert all(one.grad is own for one, own in zip(captured.parameters, gradients, strict=True))
        assert_equal(await captured.state(), await eager.state())


async def test_two_passes_in_one_step(device: str) -> None:
    """Gradients are accumulated within the captured step, too."""

    async def step(model: Model) -> None:
        model.optimizer.zero_grad()
        for _ in range(2):
            await model.loss().backward()
        model.optimizer.step()

    async with aiodev.Stream(device):
        eager, captured = Model(device), Model(device)
        async with aiodev.capture() as graph:
            await step(captured)
        for _ in range(3):
            await step(eager)
            graph.replay()
        assert_equal(await captured.state(), await eager.state())


async def test_a_replayed_step_follows_who_uses_the_parameters(device: str) -> None:
    """As an eager step does: who reads them on another stream still reads what they were."""
    async with aiodev.Stream(device) as main:
        model = Model(device)
        async with aiodev.capture() as graph:
            await model.step()
        await graph.replay()
        before = await model.parameters[0].numpy()
        with aiodev.Stream(device) as side:
            side.wait_stream(main)
            latch = Latch(side)
            seen = model.parameters[0].detach() * 1.0
        done = graph.replay()
        assert not done.query()
        latch.release()
        assert np.array_equal(await seen.numpy(), before)
        await done
        assert not np.array_equal(await model.parameters[0].numpy(), before)


@aiodev.kernel
def refuse(i, x):
    if x[i] == x[i]:
        raise ValueError("no such weight")


@pytest.mark.parametrize("how", ["eager", "graphed"])
@pytest.mark.parametrize("reader", ["fails", "is withdrawn"])
async def test_a_step_waits_for_who_reads_the_parameters_and_not_for_his_success(device: str, how: str, reader: str) -> None:
    """A client that is served by the parameters, and fails or has gone, costs training nothing."""
    train, client = aiodev.Stream(device), aiodev.Stream(device)
    with train:
        model, other = Model(device), Model(device)
        step = aiodev.make_graphed(model.step) if how == "graphed" else model.step
        for one in (step, other.step):
            await one()
        await train.synchronize()
    with client, autograd.no_grad():
        begun, ending = threading.Event(), threading.Event()
        client.call(lambda: (begun.set(), ending.wait(60)))
        await asyncio.to_thread(begun.wait, 60)
        if reader == "fails":
            refuse[3](model.parameters[0].detach()[0])
        answer = model.parameters[0] * 2.0
        if reader == "is withdrawn":
            assert client.cancel()
    with train:
        found = await step()
        assert not train.query()
        ending.set()
        assert await found.item() == await (await other.step()).item()
        assert_equal(await model.state(), await other.state())
    with pytest.raises(aiodev.AiodevError):
        await answer.numpy()


async def test_a_captured_update_follows_readers_that_are_captured(device: str) -> None:
    """Whatever captured stream reads a parameter before it, though nothing of its gradient comes from there."""
    async with aiodev.Stream(device) as main:
        w, side = autograd.Variable(aiodev.ones(4, device=device)), aiodev.Stream(device)
        w.grad = aiodev.ones(4, device=device)
        async with aiodev.capture(main) as graph:
            side.wait_stream(main)
            with side:
                seen = kernels.square(w.detach())
            optim.SGD([w], 0.5).step()
            main.wait_stream(side)
        table = [line.split() for line in str(graph).splitlines()[2:]]
        (read,) = [row[0] for row in table if row[2] == "square"]
        (update,) = [row for row in table if row[2] == "descend"]
        assert update[4] == read
        for value in (1.0, 0.25):
            await graph.replay()
            assert await seen.tolist() == [value] * 4


async def test_clipped_gradients_are_captured(device: str) -> None:
    """The norm, and what follows from it, is another one at each replay."""

    async def step(model: Model) -> Any:
        model.optimizer.zero_grad()
        await model.loss().backward()
        norm = optim.clip_grad_norm(model.parameters, 0.5)
        model.optimizer.step()
        return norm

    async with aiodev.Stream(device):
        eager, captured = Model(device), Model(device)
        async with aiodev.capture() as graph:
            norm = await step(captured)
        for _ in range(10):
            expected = await step(eager)
            graph.replay()
            assert await norm.item() == await expected.item()
        assert_equal(await captured.state(), await eager.state())


async def test_a_graphed_step(device: str) -> None:
    """A coroutine function is captured when it is first awaited; its result is fresh, and gradients stay where they are."""
    async with aiodev.Stream(device):
        eager, captured = Model(device), Model(device)

        @aiodev.make_graphed
        async def step(x: aiodev.Array, y: aiodev.Array) -> Any:
            captured.x, captured.y = x, y
            return await captured.step()

        random, widths = np.random.default_rng(1), (SIZES[0], SIZES[-1])
        losses, expected = [], []
        for rows in (8, 8, 3, 8, 3):
            x, y = (aiodev.asarray(random.standard_normal((rows, n)).astype("f4"), device=device) for n in widths)
            losses.append(await step(x, y))
            eager.x, eager.y = x, y
            expected.append(await eager.step())
        assert [await one.item() for one in losses] == [await one.item() for one in expected]
        assert step.captures == 2 and not any(isinstance(one, autograd.Variable) for one in losses)
        assert_equal([await one.numpy() for one in captured.parameters], [await one.numpy() for one in eager.parameters])


async def test_tasks_that_await_a_graphed_step_first(device: str) -> None:
    """One of them captures it; each takes a step."""
    async with aiodev.Stream(device):
        eager, captured = Model(device), Model(device)
        step = aiodev.make_graphed(captured.step)
        await asyncio.gather(*(step() for _ in range(5)))
        for _ in range(5):
            await eager.step()
        assert step.captures == 1
        assert_equal(await captured.state(), await eager.state())


async def test_gradients_that_a_graphed_function_returns(device: str) -> None:
    """They are those at the leaves, which each call writes to."""
    async with aiodev.Stream(device):
        model = Model(device)

        @aiodev.make_graphed
        async def gradients() -> list[Any]:
            model.optimizer.zero_grad()
            await model.loss().backward()
            return [one.grad for one in model.parameters]

        first = await gradients()
        assert all(own is one.grad for own, one in zip(first, model.parameters, strict=True))
        model.optimizer.step()
        before = await first[0].numpy()
        await gradients()
        assert not np.array_equal(await first[0].numpy(), before)


async def test_a_graphed_step_that_fails(device: str) -> None:
    """It raises what it raises, and is captured at the next call."""
    async with aiodev.Stream(device):
        eager, captured = Model(device), Model(device)
        error: Exception | None = OSError("no data")

        @aiodev.make_graphed
        async def step() -> Any:
            loss = await captured.step()
            if error is not None:
                raise error
            return loss

        with pytest.raises(OSError, match="no data"):
            await step()
        error = None
        await step()
        await eager.step()
        assert step.captures == 1
        assert_equal(await captured.state(), await eager.state())


async def test_variables_are_no_arguments(device: str) -> None:
    """Of a call nothing is recorded, so one whose gradient is wanted is refused, each time; where none is, it is an array."""
    async with aiodev.Stream(device):
        w = autograd.Variable(aiodev.full(2, 3.0))
        double = aiodev.make_graphed(lambda x: x * 2)

        @aiodev.make_graphed
        async def step(x: Any) -> None:
            await kernels.square(x).sum().backward()

        for _ in range(2):
            for wrong in (w, w * 2.0):
                with pytest.raises(RuntimeError, match="graphed <lambda> with a variable as an argument is not recorded"):
                    double(wrong)
                with pytest.raises(RuntimeError, match="graphed step with a variable as an argument is not recorded"):
                    await step(wrong)
        assert w.grad is None
        with autograd.no_grad():
            assert await double(w).tolist() == await double(w.detach()).tolist() == [6, 6]


# The learning rate


def schedule(step: int) -> float:
    """A cosine."""
    return 0.1 * (1 + np.cos(np.pi * step / 10)) / 2


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
async def test_a_learning_rate_that_is_an_input(device: str, name: str) -> None:
    """It changes between replays, to the bit as a number does between eager steps."""
    async with aiodev.Stream(device):
        eager, captured = Model(device, OPTIMIZERS[name]), Model(device, OPTIMIZERS[name])
        async with aiodev.capture() as graph:
            captured.optimizer.lr = graph.input("lr", 0.0)
            await captured.step()
        for step in range(10):
            eager.optimizer.lr = schedule(step)
            await eager.step()
            graph.update(lr=schedule(step))
            graph.replay()
        assert_equal(await captured.state(), await eager.state())


@pytest.mark.parametrize("name", ["SGD, Nesterov", "Adam"])
async def test_a_learning_rate_that_is_an_argument(device: str, name: str) -> None:
    """A number of NumPy's is in memory of the graph, so each call may have another."""
    async with aiodev.Stream(device):
        eager, captured = Model(device, OPTIMIZERS[name]), Model(device, OPTIMIZERS[name])

        @aiodev.make_graphed
        async def step(lr: Any) -> None:
            captured.optimizer.lr = lr
            await captured.step()

        for number in range(10):
            eager.optimizer.lr = schedule(number)
            await eager.step()
            await step(np.float64(schedule(number)))
        assert step.captures == 1
        assert_equal(await captured.state(), await eager.state())


async def test_a_learning_rate_that_the_device_computes(device: str) -> None:
    """As any captured array it is another one at each replay."""
    async with aiodev.Stream(device):
        eager, captured = Model(device), Model(device)
        rate = aiodev.full((), 0.1, "float64", device)
        async with aiodev.capture() as graph:
            captured.optimizer.lr = rate
            await captured.step()
            rate *= 0.5
        for step in range(5):
            eager.optimizer.lr = 0.1 * 0.5**step
            await eager.step()
            graph.replay()
        assert_equal(await captured.state(), await eager.state())


async def test_kernels_of_gradients_name_the_forward_call(device: str) -> None:
    """In a graph, and so in errors and profiles, they have the line of the operation that they are the gradient of."""
    async with aiodev.Stream(device):
        w = autograd.Variable(aiodev.ones((4, 4), device=device))
        async with aiodev.capture() as graph:
            y = kernels.tanh(w)
            loss = y.sum()
            await loss.backward()
    rows = {row[2]: row[-1] for row in (line.split() for line in str(graph).splitlines()[2:])}
    assert rows["tanh_gradient"] == rows["tanh"] != rows["fill"]


# Several streams


async def run_program(steps: list[Step], device: str, captured: bool, update: int) -> list[np.ndarray[Any, Any]]:
    """What a few steps of training leave, each of a forward over several streams, a backward pass and an update on one."""
    random = np.random.default_rng(3)
    streams = [aiodev.Stream(device) for _ in range(STREAMS)]
    async with streams[0]:
        hosts = [random.uniform(-1, 1, (2, 3)) for _ in range(LEAVES)]
        leaves = [autograd.Variable(aiodev.asarray(host, device=device)) for host in hosts]
        optimizer = optim.Adam(leaves, 0.05)

    async def step() -> None:
        optimizer.zero_grad()
        for stream in streams[1:]:
            stream.wait_stream(streams[0])
        roots = run_forward(steps, leaves, streams)
        with streams[update]:
            await autograd.backward(roots)
            optimizer.step()
        for stream in streams[1:]:  # who is captured is awaited
            streams[0].wait_stream(stream)

    with streams[0]:
        if captured:
            async with aiodev.capture(streams[0]) as graph:
                await step()
        for _ in range(4):
            graph.replay() if captured else await step()
        gradients = [one.grad for one in leaves if one.grad is not None]
        arrays = [*leaves, *gradients, *optimizer.state_dict()["state"].values()]
        return [await one.numpy() for one in arrays]


@settings(max_examples=examples(60), deadline=None)
@given(steps=programs(10), update=st.integers(0, STREAMS - 1))
def test_random_steps_over_streams(device: str, steps: list[Step], update: int) -> None:
    """Replays leave what eager steps leave, whatever runs where."""
    expected = asyncio.run(run_program(steps, device, False, update))
    assert_equal(asyncio.run(run_program(steps, device, True, update)), expected)


# What cannot be captured


async def test_a_forward_that_is_not_captured(device: str) -> None:
    """The error names the operation and its call; the pass may run outside afterwards."""
    async with aiodev.Stream(device):
        model = Model(device)
        loss = model.loss()
        async with aiodev.capture() as graph:
            with pytest.raises(aiodev.CaptureError, match=r"mean, called at .*test_training.* not captured") as caught:
                await loss.backward()
        assert caught.value.place is not None and len(graph) == 0
        await loss.backward()
        assert all(one.grad is not None for one in model.parameters)


async def test_a_pass_that_is_not_captured(device: str) -> None:
    """Neither is it captured because its forward was, on a stream that is current no more."""
    model = Model(device)
    outside = aiodev.Stream(device)
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        loss = model.loss()
        count = graph._recording().streams[0].timeline.submitted
        with outside, pytest.raises(aiodev.CaptureError, match="is being captured, and the backward pass is not"):
            await loss.backward()
        assert graph._recording().streams[0].timeline.submitted == count
        await loss.backward()
    await aiodev.synchronize(device)
    await graph.replay()
    assert all([np.isfinite(await one.grad.numpy()).all() for one in model.parameters])


@pytest.mark.parametrize("replays", [0, 1])
async def test_a_pass_behind_the_block(device: str, replays: int) -> None:
    """What its forward has computed is not there, or that of a replay: the error says so, and no gradient is stored."""
    async with aiodev.Stream(device):
        w = autograd.Variable(aiodev.ones(3, device=device))
        async with aiodev.capture() as graph:
            loss = kernels.exp(w).sum()
        for _ in range(replays):
            await graph.replay()
        with pytest.raises(aiodev.CaptureError, match="the result, kept .* in the same block") as caught:
            await loss.backward()
        assert any("exp, called at" in note and "test_training" in note for note in caught.value.__notes__)
        assert w.grad is None


async def test_gradients_of_a_capture_that_is_under_way(device: str) -> None:
    """Who is not captured does not add to them, and takes no step by them."""
    model = Model(device)
    outside = aiodev.Stream(device)
    with outside:
        loss = model.loss()
    async with aiodev.capture(aiodev.Stream(device)):
        await model.loss().backward()
        gradients = [one.grad for one in model.parameters]
        with outside:
            with pytest.raises(aiodev.CaptureError, match="gradient that is being captured"):
                await loss.backward()
            with pytest.raises(aiodev.CaptureError, match="cannot follow captured work"):
                model.optimizer.step()
        assert all(one.grad is own for one, own in zip(model.parameters, gradients, strict=True))


async def test_a_gradient_that_waits(device: str) -> None:
    """A coroutine that reads captured work on the host is named, with the call and with the operation."""

    class Peeking(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2.0

        @staticmethod
        async def backward(ctx: Any, g: Any) -> Any:
            await g.numpy()
            return g

    model = Model(device)
    async with aiodev.capture(aiodev.Stream(device)):
        with pytest.raises(aiodev.CaptureError, match=r"Array.numpy at .*test_training") as caught:
            await (Peeking.apply(model.parameters[0]) * 3.0).sum().backward()
    assert "Peeking, called at" in caught.value.__notes__[0]
    assert model.parameters[0].grad is None


async def test_a_gradient_that_awaits_other_things(device: str) -> None:
    """A coroutine that submits, and waits for nothing that is captured, is captured."""

    class Slow(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2.0

        @staticmethod
        async def backward(ctx: Any, g: Any) -> Any:
            await asyncio.sleep(0)
            return g * 2.0

    w = autograd.Variable(aiodev.ones(3, device=device))
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        await (Slow.apply(w) * w).sum().backward()
    await graph.replay()
    assert await w.grad.tolist() == [4.0, 4.0, 4.0]


async def test_anomalies_are_not_looked_for(device: str) -> None:
    """To look is to wait."""
    model = Model(device)
    async with aiodev.capture(aiodev.Stream(device)):
        with autograd.detect_anomaly(), pytest.raises(aiodev.CaptureError, match="detect_anomaly"):
            await model.loss().backward()


async def test_checkpoints_are_not_captured(device: str) -> None:
    """The call is named."""
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        w = autograd.Variable(aiodev.empty(3))
        with pytest.raises(aiodev.CaptureError, match=r"checkpoint at .*test_training"):
            autograd.checkpoint(kernels.exp, w)
    assert len(graph) == 0


async def test_gradients_that_cannot_be_added_to_in_place(device: str) -> None:
    """One that is read-only, and one of a graph, are named; nothing is stored."""
    async with aiodev.Stream(device):
        model = Model(device)
        first, *_, last = model.parameters
        await model.loss().backward(create_graph=True)
        first.grad = None
        before = last.grad
        async with aiodev.capture(aiodev.Stream(device)):
            with pytest.raises(aiodev.CaptureError, match="zero_grad"):
                await model.loss().backward()
        assert first.grad is None and last.grad is before

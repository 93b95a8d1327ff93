"""What differentiation costs in Python, next to PyTorch's: recording, nodes of a backward pass, whole steps of small models.

The device has next to nothing to do, so these are overheads. PyTorch takes part where it is installed, with two threads.
"""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import Bar, Figure, Run
from library_peers import PAUSE, TORCH, has_torch, tensors
from peers import timed

import aiodev
from aiodev import autograd, kernels, optim, profiler

__all__ = ["FIGURES"]

#: Nodes of a chain.
NODES = 1000
#: Of the perceptron: rows of a batch, inputs, hidden units of both layers, outputs.
ROWS, INPUTS, HIDDEN, OUTPUTS = 32, 16, 32, 8

#: The case of steps that are captured as one graph.
CAPTURED = "captured"

Case = Callable[[], Awaitable[float]] | Callable[[], float]
Step = Callable[..., Awaitable[Any]]


def _on_device(host: np.ndarray[Any, Any]) -> aiodev.Array:
    return aiodev.asarray(host, device="cpu")


async def recording(run: Run) -> Figure:
    """One operation of small arrays, of which the result is dropped: of plain arrays, and of a variable."""
    host = np.ones((4, 8), np.float32)
    x, other = _on_device(host), _on_device(host)
    w, count, stream = autograd.Variable(_on_device(host)), run.scale(5_000), aiodev.Stream("cpu")

    def submitted(operate: Callable[[], object]) -> Case:
        async def case() -> float:
            with stream:
                value = timed(operate, count)
            await stream.synchronize()
            return value

        return case

    cases: dict[str, Case] = {"aiodev": submitted(lambda: w * other), "of plain arrays": submitted(lambda: x * other)}
    bars = [Bar("of plain arrays", at_most=3)]
    if has_torch():
        weight, factor = tensors(host, host)
        weight.requires_grad_()
        cases[TORCH] = lambda: timed(lambda: weight * factor, count)
    return Figure("a recorded product of 32 elements, submission", "µs", await run.medians(cases), bars)


async def nodes(run: Run) -> Figure:
    """A backward pass through a chain of additions of numbers, each of which passes its gradient on, without a kernel."""
    host, count = np.ones(8, np.float32), run.scale(NODES)
    w, stream = autograd.Variable(_on_device(host)), aiodev.Stream("cpu")

    def chain(x: Any) -> Any:
        for _ in range(count):
            x = x + 1.0
        return x.sum()

    async def ours() -> float:
        with stream:
            loss = chain(w)
            w.grad = None
            await stream.synchronize()
            began = time.perf_counter()
            await loss.backward()
            value = (time.perf_counter() - began) / count * 1e6
            await stream.synchronize()
        return value

    cases: dict[str, Case] = {"aiodev": ours}
    if has_torch():
        (weight,) = tensors(host)
        weight.requires_grad_()

        def theirs() -> float:
            loss = chain(weight)
            weight.grad = None
            began = time.perf_counter()
            loss.backward()
            return (time.perf_counter() - began) / count * 1e6

        cases[TORCH] = theirs
    values = await run.medians(cases)
    values["limit"] = 5.0
    return Figure("a node of a backward pass, without a kernel", "µs", values, [Bar("limit", at_most=1)])


async def perceptron(run: Run) -> Figure:
    """A step of training, forward, backward and SGD, of three layers on a batch of 32; the last loss is waited for.

    Submitted operation by operation, and captured as one graph.
    """
    generator = np.random.default_rng(0)
    sizes = ((INPUTS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, OUTPUTS))
    pairs = [(generator.standard_normal(size).astype("f4") * 0.1, np.zeros(size[1], "f4")) for size in sizes]
    hosts = [host for pair in pairs for host in pair]
    data = [generator.standard_normal((ROWS, width)).astype("f4") for width in (INPUTS, OUTPUTS)]
    count = run.scale(100)

    def loss_of(tanh: Callable[[Any], Any], x: Any, y: Any, p: Any) -> Any:
        h = tanh(tanh(x @ p[0] + p[1]) @ p[2] + p[3]) @ p[4] + p[5]
        d = h - y
        return (d * d).mean()

    def ours() -> Step:
        parameters = [autograd.Variable(_on_device(host)) for host in hosts]
        optimizer = optim.SGD(parameters, 0.01)

        async def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = loss_of(kernels.tanh, x, y, parameters)
            await loss.backward()
            optimizer.step()
            return loss

        return step

    x, y = map(_on_device, data)
    cases: dict[str, Case] = {
        "aiodev": _trained(ours(), lambda: (x, y), count),
        CAPTURED: _trained(aiodev.make_graphed(ours()), lambda: (x, y), count),
    }
    bars = []
    if has_torch():
        import torch

        weights = [one.requires_grad_() for one in tensors(*hosts)]
        inputs, wanted = tensors(*data)
        other = torch.optim.SGD(weights, 0.01)

        def theirs() -> Any:
            other.zero_grad()
            loss = loss_of(torch.tanh, inputs, wanted, weights)
            loss.backward()
            other.step()
            return loss

        cases[TORCH] = _trained_by_torch(theirs, count)
        bars = [Bar(TORCH, at_most=0.5), Bar(TORCH, at_most=0.2, case=CAPTURED)]
    return Figure("a step of a perceptron of three layers", "µs", await run.medians(cases), bars)


async def digits(run: Run) -> Figure:
    """A step of the network of examples/digits, with AdamW, on a batch of 64 images; the last loss is waited for."""
    model = _example()
    data, count = model.load_data(), run.scale(20)
    batches = np.random.default_rng(0).integers(0, len(data.train[0]), (count, model.BATCH))
    with aiodev.device("cpu"):
        plain, captured = model.Model(data, 0), model.Model(data, 0)
    rate = np.float64(1e-3)

    def arguments() -> Callable[[], Any]:
        chosen = itertools.cycle(batches)
        return lambda: (_on_device(next(chosen)), rate)

    cases: dict[str, Case] = {
        "aiodev": _trained(plain._step, arguments(), count),
        CAPTURED: _trained(captured.step, arguments(), count),
    }
    bars = []
    if has_torch():
        import torch

        functions = torch.nn.functional
        weights = [one.requires_grad_() for one in tensors(*[await p.numpy() for p in plain.parameters])]
        images, labels = tensors(*data.train)
        other = torch.optim.AdamW(weights, 1e-3)
        chosen = itertools.cycle(tensors(batches)[0])

        def theirs() -> Any:
            filters, offsets, more, others, weight, bias, last, shift = weights
            other.zero_grad()
            own = next(chosen)
            x = functions.relu(functions.conv2d(images[own], filters, offsets, padding=1))
            x = functions.max_pool2d(functions.relu(functions.conv2d(x, more, others, padding=1)), 2)
            x = functions.relu(x.reshape(len(x), -1) @ weight + bias) @ last + shift
            loss = functions.cross_entropy(x, labels[own])
            loss.backward()
            other.step()
            return loss

        cases[TORCH] = _trained_by_torch(theirs, count)
        bars = [Bar(TORCH, at_most=1.0), Bar(TORCH, at_most=1.0, case=CAPTURED)]
    return Figure("a step of the digits network", "µs", await run.medians(cases, pause=PAUSE), bars)


async def events(run: Run) -> Figure:
    """Events that a backward pass on one stream records."""
    w, stream = autograd.Variable(_on_device(np.ones((8, 8), np.float32))), aiodev.Stream("cpu")
    with stream:
        loss = (kernels.tanh(w @ w) * w).sum()
        before = profiler.counters()["events_recorded"]
        await loss.backward()
        count = profiler.counters()["events_recorded"] - before
        await stream.synchronize()
    values = {"aiodev": float(count), "limit": 0.0}
    return Figure("events of a backward pass on one stream", "", values, [Bar("limit", within=0.0)])


def _trained(step: Step, arguments: Callable[[], tuple[Any, ...]], count: int) -> Case:
    """Microseconds of a step, of some in a row, on a stream of its own."""
    stream = aiodev.Stream("cpu")

    async def case() -> float:
        with stream:
            began = time.perf_counter()
            for _ in range(count):
                await step(*arguments())
            await stream.synchronize()
        return (time.perf_counter() - began) / count * 1e6

    return case


def _trained_by_torch(step: Callable[[], Any], count: int) -> Case:
    def case() -> float:
        began = time.perf_counter()
        for _ in range(count):
            loss = step()
        loss.item()
        return (time.perf_counter() - began) / count * 1e6

    return case


def _example() -> Any:
    """examples/digits/model.py, which is no part of a package."""
    path = Path(__file__).resolve().parents[2] / "examples" / "digits" / "model.py"
    spec = importlib.util.spec_from_file_location("digits_model", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FIGURES = {
    "autograd-recording": recording,
    "autograd-nodes": nodes,
    "autograd-events": events,
    "autograd-perceptron": perceptron,
    "autograd-digits": digits,
}

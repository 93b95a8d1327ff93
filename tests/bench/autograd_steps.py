"""What differentiation costs in Python, next to PyTorch's: recording, nodes of a backward pass, whole steps of small models.

The device has next to nothing to do, so these are overheads. PyTorch takes part where it is installed, with two threads.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from harness import Bar, Figure, Run
from library_peers import TORCH, has_torch, tensors
from peers import timed

import aiodev
from aiodev import autograd, kernels, optim

__all__ = ["FIGURES"]

#: Nodes of a chain.
NODES = 1000
#: Of the perceptron: rows of a batch, inputs, hidden units of both layers, outputs.
ROWS, INPUTS, HIDDEN, OUTPUTS = 32, 16, 32, 8

Case = Callable[[], Awaitable[float]] | Callable[[], float]


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
    """A step of training, forward, backward and SGD, of three layers on a batch of 32; the last loss is waited for."""
    generator = np.random.default_rng(0)
    sizes = ((INPUTS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, OUTPUTS))
    pairs = [(generator.standard_normal(size).astype("f4") * 0.1, np.zeros(size[1], "f4")) for size in sizes]
    hosts = [host for pair in pairs for host in pair]
    data = [generator.standard_normal((ROWS, width)).astype("f4") for width in (INPUTS, OUTPUTS)]
    count, stream = run.scale(100), aiodev.Stream("cpu")

    def loss_of(tanh: Callable[[Any], Any], x: Any, y: Any, p: Any) -> Any:
        h = tanh(tanh(x @ p[0] + p[1]) @ p[2] + p[3]) @ p[4] + p[5]
        d = h - y
        return (d * d).mean()

    parameters = [autograd.Variable(_on_device(host)) for host in hosts]
    x, y = map(_on_device, data)
    optimizer = optim.SGD(parameters, 0.01)

    async def ours() -> float:
        with stream:
            began = time.perf_counter()
            for _ in range(count):
                optimizer.zero_grad()
                loss = loss_of(kernels.tanh, x, y, parameters)
                await loss.backward()
                optimizer.step()
            await loss.item()
        return (time.perf_counter() - began) / count * 1e6

    cases: dict[str, Case] = {"aiodev": ours}
    bars = []
    if has_torch():
        import torch

        weights = [one.requires_grad_() for one in tensors(*hosts)]
        inputs, wanted = tensors(*data)
        other = torch.optim.SGD(weights, 0.01)

        def theirs() -> float:
            began = time.perf_counter()
            for _ in range(count):
                other.zero_grad()
                loss = loss_of(torch.tanh, inputs, wanted, weights)
                loss.backward()
                other.step()
            loss.item()
            return (time.perf_counter() - began) / count * 1e6

        cases[TORCH] = theirs
        bars.append(Bar(TORCH, at_most=0.5))
    return Figure("a step of a perceptron of three layers", "µs", await run.medians(cases), bars)


FIGURES = {"autograd-recording": recording, "autograd-nodes": nodes, "autograd-perceptron": perceptron}

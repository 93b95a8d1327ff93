"""Answers: a small classifier for each of many clients of one process, whose answers are there nearly at once.

Each request is a replay of the whole network on a stream of its own, in one submission, and a read. So a client of ours hardly
ever waits for the device, and how tasks that need not wait take turns decides. Peers compute the same in ``asyncio.to_thread``:
NumPy by products of matrices, PyTorch and JAX where they are installed. All take turns of a second; what counts is the time per
answer, and the 99th percentile of the latencies, next to those of whichever peer is best. *Not captured* is the same network by
plain calls of the library, nine submissions a request.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from generate_peers import is_installed
from harness import Bar, Figure, Run
from services import BESIDE, CLASSES, CLIENTS, FEATURES, Load, Way

import aiodev
import aiodev.kernels
from aiodev._demo.program import busy_processes

__all__ = ["FIGURES"]

#: Images of a request.
IMAGES = 8
#: Outputs of an inner layer.
HIDDEN = 128
#: A dense layer: weights, (inputs, outputs), and bias.
Layers = list[tuple[np.ndarray, np.ndarray]]
#: Computes the probabilities of the classes of images, in any thread.
Answer = Callable[[np.ndarray], np.ndarray]


def make_layers() -> Layers:
    """Three dense layers."""
    rng, sizes = np.random.default_rng(0), (FEATURES, HIDDEN, HIDDEN, CLASSES)
    return [
        (rng.normal(size=(inputs, outputs)).astype(np.float32) / 8, np.zeros(outputs, np.float32))
        for inputs, outputs in zip(sizes, sizes[1:], strict=False)
    ]


def ours(layers: Layers, image: np.ndarray, captured: bool = True) -> Callable[[], Any]:
    """One replay on a stream of the request's, or the calls of the library that it has captured."""
    given = [tuple(aiodev.asarray(each, device="cpu") for each in layer) for layer in layers]

    def network(values: aiodev.Array) -> aiodev.Array:
        for number, (weights, bias) in enumerate(given):
            values = values @ weights + bias
            if number < len(given) - 1:
                values = aiodev.kernels.relu(values)
        return aiodev.kernels.softmax(values)

    compute = aiodev.make_graphed(network) if captured else network

    async def answer() -> np.ndarray:
        async with aiodev.Stream("cpu"):
            return await compute(aiodev.asarray(image)).numpy()

    return answer


def by_numpy(layers: Layers) -> Answer:
    """Products of NumPy's, whose BLAS has one thread where threadpoolctl can see to it: more lose, at these sizes."""
    if is_installed("threadpoolctl"):
        importlib.import_module("threadpoolctl").ThreadpoolController().select(internal_api="openblas").limit(limits=1)

    def answer(values: np.ndarray) -> np.ndarray:
        for number, (weights, bias) in enumerate(layers):
            values = values @ weights + bias
            if number < len(layers) - 1:
                values = np.maximum(values, 0)
        values = np.exp(values - values.max(-1, keepdims=True))
        return values / values.sum(-1, keepdims=True)  # type: ignore[no-any-return]

    return answer


def by_torch(layers: Layers) -> Answer:
    """PyTorch, without gradients, one thread for a request."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    given = [(torch.from_numpy(weights.T.copy()), torch.from_numpy(bias)) for weights, bias in layers]

    def answer(image: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            values = torch.from_numpy(image)
            for number, (weights, bias) in enumerate(given):
                values = torch.nn.functional.linear(values, weights, bias)
                if number < len(given) - 1:
                    values = torch.relu(values)
            return torch.softmax(values, -1).numpy()  # type: ignore[no-any-return]

    return answer


def by_jax(layers: Layers) -> Answer:
    """JAX, compiled as a whole."""
    jax = importlib.import_module("jax")

    @jax.jit
    def network(values: Any) -> Any:
        for number, (weights, bias) in enumerate(layers):
            values = values @ weights + bias
            if number < len(layers) - 1:
                values = jax.nn.relu(values)
        return jax.nn.softmax(values)

    return lambda image: np.asarray(network(image))


PEERS: dict[str, tuple[str, Callable[[Layers], Answer]]] = {
    "NumPy": ("numpy", by_numpy), "PyTorch": ("torch", by_torch), "JAX": ("jax", by_jax),
}  # fmt: skip


async def measure(beside: int, run: Run) -> Figure:
    """Clients of a classifier beside so many busy processes."""
    await aiodev.init("cpu")
    layers, image = make_layers(), np.random.default_rng(1).random((IMAGES, FEATURES), np.float32)
    ways: dict[str, Way] = {"aiodev": ours(layers, image), "aiodev, not captured": ours(layers, image, captured=False)}
    own = list(ways)
    expected = by_numpy(layers)(image)
    for name, (package, make) in PEERS.items():
        if is_installed(package):
            answer = make(layers)
            ways[f"{name}, to_thread"] = lambda answer=answer: asyncio.to_thread(answer, image)
    cases: dict[str, Any] = {}
    for name, way in ways.items():
        np.testing.assert_allclose(await way(), expected, rtol=1e-3, atol=1e-3)
        load = Load(0.01 if run.smoke else 1.0)
        cases |= {name: lambda load=load, way=way: load.mean(way), f"{name}, p99": load.p99}
    with busy_processes(beside):
        values = await run.medians(cases)
    bars = []
    for what in ("", ", p99"):
        best = min((f"{name}{what}" for name in ways if name not in own), key=lambda name: values[name])
        bars.append(Bar(best, at_most=1, case=f"aiodev{what}"))
    return Figure(f"{CLIENTS} clients of a classifier, beside {beside} busy processes", "ms", values, bars)


def _figure(beside: int) -> Callable[[Run], Any]:
    return lambda run: measure(beside, run)


FIGURES = {f"answers-beside-{beside}": _figure(beside) for beside in BESIDE}

"""Losses of training are those of the same model in PyTorch, step by step, from the same parameters and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

import aiodev
from aiodev import autograd, kernels, optim

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

STEPS, BATCH = 40, 64
Hosts = list[np.ndarray[Any, Any]]


def batches() -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Images of digits, (64, 1, 8, 8) from 0 to 1, and which digits they are."""
    images, labels = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        chosen = random.integers(0, len(images), BATCH)
        yield (images[chosen] / 16).astype(np.float32).reshape(BATCH, 1, 8, 8), labels[chosen].astype(np.int64)


def perceptron() -> Hosts:
    """Weights and biases of three layers."""
    random = np.random.default_rng(1)
    sizes = (64, 64, 32, 10)
    return [
        host.astype(np.float32)
        for n, m in zip(sizes, sizes[1:], strict=False)
        for host in (random.standard_normal((n, m)) / np.sqrt(n), np.zeros(m))
    ]


def perceptron_scores(functions: Any, x: Any, p: Any) -> Any:
    x = x.reshape(BATCH, 64)
    return functions.tanh(functions.tanh(x @ p[0] + p[1]) @ p[2] + p[3]) @ p[4] + p[5]


def network() -> Hosts:
    """Filters and biases of two convolutions, weights and biases of two layers."""
    random = np.random.default_rng(2)
    shapes = [((8, 1, 3, 3), 9), ((16, 8, 3, 3), 72), ((256, 32), 256), ((32, 10), 32)]
    hosts: Hosts = []
    for shape, inputs in shapes:
        outputs = shape[0] if len(shape) == 4 else shape[1]
        hosts += [random.standard_normal(shape) * np.sqrt(2 / inputs), np.zeros(outputs)]
    return [host.astype(np.float32) for host in hosts]


def network_scores(x: Any, p: Any) -> Any:
    x = kernels.relu(kernels.conv2d(x, p[0], p[1], padding=1))
    x = kernels.max_pool2d(kernels.relu(kernels.conv2d(x, p[2], p[3], padding=1)), 2)
    return kernels.relu(x.reshape(BATCH, 256) @ p[4] + p[5]) @ p[6] + p[7]


def network_scores_by_pytorch(x: Any, p: Any) -> Any:
    functions = torch.nn.functional
    x = functions.relu(functions.conv2d(x, p[0], p[1], padding=1))
    x = functions.max_pool2d(functions.relu(functions.conv2d(x, p[2], p[3], padding=1)), 2)
    return functions.relu(x.reshape(BATCH, 256) @ p[4] + p[5]) @ p[6] + p[7]


MODELS: dict[str, tuple[Hosts, Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "perceptron": (
        perceptron(),
        lambda x, p: perceptron_scores(kernels, x, p),
        lambda x, p: perceptron_scores(torch, x, p),
    ),
    "convolutions": (network(), network_scores, network_scores_by_pytorch),
}
OPTIMIZERS: dict[str, Callable[[Any, Any], Any]] = {
    "SGD": lambda library, p: library.SGD(p, lr=0.05, momentum=0.9),
    # With a smaller eps gradients that are 0 but for rounding are steps of their own.
    "AdamW": lambda library, p: library.AdamW(p, lr=0.003, eps=1e-6),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """PyTorch's second thread would spin on a core that the device works on."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


def losses_of_pytorch(model: str, optimizer: str) -> list[float]:
    hosts, _, scores = MODELS[model]
    parameters = [torch.tensor(host, requires_grad=True) for host in hosts]
    own = OPTIMIZERS[optimizer](torch.optim, parameters)
    losses = []
    for x, labels in batches():
        own.zero_grad()
        loss = torch.nn.functional.cross_entropy(scores(torch.tensor(x), parameters), torch.tensor(labels))
        loss.backward()
        own.step()
        losses.append(loss.item())
    return losses


async def losses_of_ours(model: str, optimizer: str, captured: bool) -> list[float]:
    hosts, scores, _ = MODELS[model]
    parameters = [autograd.Variable(aiodev.asarray(host, device="cpu")) for host in hosts]
    own = OPTIMIZERS[optimizer](optim, parameters)

    async def step(x: aiodev.Array, labels: aiodev.Array) -> Any:
        own.zero_grad()
        loss = kernels.cross_entropy(scores(x, parameters), labels)
        await loss.backward()
        own.step()
        return loss

    function = aiodev.make_graphed(step) if captured else step
    losses = []
    for x, labels in batches():
        losses.append(await function(aiodev.asarray(x, device="cpu"), aiodev.asarray(labels, device="cpu")))
    return [await loss.item() for loss in losses]


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
async def test_losses_are_those_of_pytorch(model: str, optimizer: str, captured: bool) -> None:
    """To 1e-4, whether steps are submitted one by one or captured, and they fall."""
    found, expected = await losses_of_ours(model, optimizer, captured), losses_of_pytorch(model, optimizer)
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert expected[-1] < expected[0] / 2

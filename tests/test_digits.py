"""The example that trains a network on handwritten digits: it learns them, and its page shows how it goes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from served import interrupt, start

import aiodev

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "digits"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """``model`` and ``training`` of the example, which are no parts of a package."""
    monkeypatch.syspath_prepend(EXAMPLE)
    others = {name: sys.modules.pop(name, None) for name in ("model", "training")}  # of other examples
    import model
    import training

    yield model, training
    for name, other in others.items():
        del sys.modules[name]
        if other is not None:
            sys.modules[name] = other


async def test_it_learns_the_digits(modules: Any) -> None:
    """At least 98 % of those that it has not seen, while the loop is free for others."""
    model, training = modules
    run = training.Training(await asyncio.to_thread(model.load_data))
    async with aiodev.device("cpu"), aiodev.Stream(), training.heartbeat() as lags:
        await run.run(lags)
    losses = [news["loss"] for news in run.news if "loss" in news]
    assert run.is_over and run.accuracy >= 0.98
    assert np.mean(losses[-10:]) < 0.05 < 1.0 < losses[0]
    assert all(0.0 <= news["lag_ms"] < 1e4 for news in run.news if "loss" in news)


async def test_the_steps_are_one_submission_each(modules: Any) -> None:
    """A step is captured once; the same seed gives the same losses, to the bit, as if each was submitted by itself."""
    model, _ = modules
    data = await asyncio.to_thread(model.load_data)
    async with aiodev.device("cpu"), aiodev.Stream():
        losses = []
        for graphed in (True, False):
            own = model.Model(data, seed=5)
            step = own.step if graphed else own._step
            taken = [await step(aiodev.asarray(np.arange(64) + n), np.float64(0.003)) for n in range(8)]
            losses.append([await loss.item() for loss in taken])
            assert own.step.captures == graphed
    assert losses[0] == losses[1]


async def test_losses_are_those_of_pytorch(modules: Any) -> None:
    """To 1e-4 over ten steps; many units are 0 in the first ones, where biases are and pixels are black."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    functions = torch.nn.functional
    model, _ = modules
    data = await asyncio.to_thread(model.load_data)
    batches = np.random.default_rng(0).integers(0, len(data.train[0]), (10, model.BATCH))
    async with aiodev.device("cpu"), aiodev.Stream():
        own = model.Model(data, seed=0)
        parameters = [torch.tensor(await one.numpy(), requires_grad=True) for one in own.parameters]
        taken = [await own.step(aiodev.asarray(chosen), np.float64(0.003)) for chosen in batches]
        losses = [await loss.item() for loss in taken]
    optimizer = torch.optim.AdamW(parameters, 0.003)
    images, labels = map(torch.tensor, data.train)
    filters, offsets, more, others, weights, bias, last, shift = parameters
    expected = []
    for chosen in batches:
        optimizer.zero_grad()
        x = functions.relu(functions.conv2d(images[chosen], filters, offsets, padding=1))
        x = functions.max_pool2d(functions.relu(functions.conv2d(x, more, others, padding=1)), 2)
        x = functions.relu(x.reshape(len(x), -1) @ weights + bias) @ last + shift
        loss = functions.cross_entropy(x, labels[chosen])
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert np.allclose(losses, expected, rtol=0, atol=1e-4)


async def test_news_are_told_to_any_number_of_followers(modules: Any) -> None:
    """Who comes late hears all of it; the end is told, too, of a run that fails."""
    _, training = modules
    run = training.Training(None)
    first = asyncio.create_task(anext(aiter(run.follow())))
    await asyncio.sleep(0)
    run._tell(step=1)
    assert await first == {"step": 1}
    with pytest.raises(AttributeError):
        await run.run([])  # there are no data
    assert [news async for news in run.follow()] == [{"step": 1}]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The example, running, with a run of two epochs; it ends in good order, and quietly."""
    process, address = start(EXAMPLE, "--epochs", "2", stderr=subprocess.PIPE)
    yield address
    status, printed, errors = interrupt(process)
    assert (status, errors) == (0, "") and "% of the digits" in printed


def events(url: str) -> list[dict[str, Any]]:
    """The news of the run, to its end."""
    with httpx.stream("GET", f"{url}/events", timeout=120) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in reply.iter_lines() if line]
    assert lines[-2:] == ["event: over", "data: {}"]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


def test_the_page_follows_a_run(url: str) -> None:
    """The page, the digits that it shows, the news as they come, and the state; then another run may begin."""
    assert "EventSource" in httpx.get(url, timeout=60).text
    digits = httpx.get(f"{url}/digits").json()
    assert len(digits["images"]) == len(digits["labels"]) and {len(image) for image in digits["images"]} == {64}
    with httpx.Client(timeout=60) as client:  # one of both comes while a run is under way
        assert 409 in [client.post(f"{url}/train").status_code for _ in range(2)]
    news = events(url)
    steps = [one for one in news if "loss" in one]
    epochs = [one for one in news if "accuracy" in one]
    assert steps[-1]["step"] == steps[-1]["steps"] and steps[-1]["loss"] < steps[0]["loss"]
    assert [one["epoch"] for one in epochs] == [1, 2] and len(epochs[0]["found"]) == len(digits["labels"])
    state = httpx.get(f"{url}/state").json()
    seed = state["seed"]
    assert state == {"is_over": True, "seed": seed, "accuracy": epochs[-1]["accuracy"], "failed": None}
    assert httpx.post(f"{url}/train").json() == {"seed": seed + 1}
    assert events(url)[0]["loss"] != steps[0]["loss"]

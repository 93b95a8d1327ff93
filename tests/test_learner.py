"""The service that writes text learns meanwhile: at low priority, on the same device and loop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import httpx
import numpy as np
import pytest
from served import interrupt, start

import aiodev

pytestmark = pytest.mark.exhaustive  # the model's kernels, and their gradients', take half a minute to compile

GENERATE = Path(__file__).resolve().parents[1] / "examples" / "generate"
sys.path.insert(0, str(GENERATE))
try:
    import batcher as batching
    import fit
    import learner as learning
    import model as modelling
finally:
    sys.path.remove(str(GENERATE))

PARAGRAPHS = [" ".join(text.split()) for text in topics.values()]
ASKED: dict[str, Any] = {"prompt": "The ", "length": 60, "temperature": 0.0, "seed": 0}


@contextlib.asynccontextmanager
async def running(weights: dict[str, np.ndarray]) -> AsyncIterator[tuple[Any, Any]]:
    """A batcher and a learner of the model that it serves."""
    async with aiodev.device("cpu"), aiodev.Stream(priority=-1) as serving:
        batcher = batching.Batcher(modelling.Model(weights))
        await batcher.start()
        yield batcher, learning.Learner(weights, batcher._model, serving)
        await batcher.aclose()


async def read(text: Any) -> str:
    with text:
        return "".join([added async for added in text])


async def weights_of(learner: Any) -> dict[str, np.ndarray]:
    """What it has learnt, as a model is made of it."""
    stacked = {name: np.stack([await one.numpy() for one in own]) for name, own in learner.parameters.items()}
    return stacked | {name: stacked[name][0] for name in ("table", "head")}


async def test_it_learns_while_texts_are_written() -> None:
    """The loss falls, texts are written meanwhile, and the service writes then what a model of the learnt weights does."""
    async with running(fit.initial()) as (batcher, learner):
        before = await read(batcher.join(**ASKED))
        learned = asyncio.create_task(learner.run(PARAGRAPHS, steps=10))
        written = 0
        while not learned.done():
            written += len(await read(batcher.join(**ASKED)))
        await learned
        after = await read(batcher.join(**ASKED))
        weights = await weights_of(learner)
    losses = [news["loss"] for news in learner.news]
    assert len(losses) == 10 and losses[-1] < losses[0] - 0.2 and 4.0 < losses[0] < 5.2
    assert written and after != before
    async with running(weights) as (batcher, _):
        assert await read(batcher.join(**ASKED)) == after


async def test_steps_are_those_of_the_program_that_fits() -> None:
    """Captured and at low priority they are, to the bit, what the operations one by one give."""
    codes = np.stack([learning.encode("\n" + PARAGRAPHS[k])[: modelling.LENGTH + 1] for k in range(2, 4)])
    found = []
    for captured in (True, False):
        async with running(fit.initial()) as (_, learner):
            with learner._stream:
                step = learner._step if captured else learner._train
                losses = [await step(aiodev.asarray(codes), np.float64(1e-3)) for _ in range(3)]
                found.append([await loss.item() for loss in losses])
    assert found[0] == found[1] and found[0][2] < found[0][0]


async def test_losses_are_those_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """To 1e-4 over ten steps, clipped gradients and decay of weights included; the other model is the benchmarks'."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.syspath_prepend(Path(__file__).parent / "bench")
    import text_training

    batches = [*itertools.islice(text_training._batches(), 10)]
    async with running(fit.initial()) as (_, learner):
        with learner._stream:
            taken = [await learner._step(aiodev.asarray(codes), np.float64(1e-3)) for codes in batches]
            losses = [await loss.item() for loss in taken]
    step = text_training._torch_step(threads=1)
    assert np.allclose(losses, [step(codes).item() for codes in batches], rtol=0, atol=1e-4)


def test_the_service_learns_and_answers() -> None:
    """With --train it writes texts from the start, tells how it learns, and ends in good order."""
    process, url = start(GENERATE, "--train", stderr=subprocess.PIPE)
    try:
        with httpx.Client(base_url=url, timeout=120) as client:
            assert client.get("/training").json()["step"] == 0
            taken: dict[str, Any] = {}
            while taken.get("step", 0) < 2:
                assert '"reason": "length"' in client.get("/generate?length=50&timeout_ms=60000").text
                taken = client.get("/training").json()
            assert 4.0 < taken["loss"] < 5.2 and taken["gap_ms"] > 0
        status, _, errors = interrupt(process)
        assert (status, errors) == (0, "")
    finally:
        process.kill()

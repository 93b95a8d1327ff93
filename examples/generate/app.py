"""The HTTP side: a page, texts as server-sent events with deadlines, health and metrics, and an end that drains."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path

import fit
import numpy as np
from batcher import Batcher, Closed, Full, Text
from learner import Learner
from model import LONGEST, Model, load_weights
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import aiodev
from aiodev import memory, profiler

__all__ = ["make_app"]

logger = logging.getLogger("generate")

LONGEST_PROMPT, LONGEST_WAIT = 500, 60.0  # characters, and seconds that a request may ask for
LATELY = 10_000  #: Beats of 1 ms that the lag is told of.


def make_app(train: bool = False) -> Starlette:
    """The service; if it is to train, it knows nothing at first, and learns behind its clients' backs."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        weights = fit.initial() if train else await asyncio.to_thread(load_weights)
        async with aiodev.device("cpu"), aiodev.Stream(priority=-1) as serving, profiler.loop_lag() as lag:
            app.state.lag = lag
            model = Model(weights)
            app.state.batcher = batcher = Batcher(model)
            await batcher.start()
            app.state.learner, learning = None, None
            if train:
                app.state.learner = learner = Learner(weights, model, serving)
                learning = asyncio.create_task(learner.learn())
            yield
            if learning is not None:
                learning.cancel()
                await asyncio.wait([learning])
            await batcher.aclose()

    routes = [
        Route("/", page),
        Route("/generate", generate),
        Route("/training", training),
        Route("/health", health),
        Route("/metrics", metrics),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def page(request: Request) -> Response:
    """Where a person has a text continued."""
    return HTMLResponse(await asyncio.to_thread((Path(__file__).parent / "page.html").read_text))


async def generate(request: Request) -> Response:
    """``?prompt=The&seed=1&temperature=0.5&length=400&timeout_ms=10000`` → events ``{"text": "…"}``, and at last ``end``."""
    asked = request.query_params
    try:
        prompt, seed = asked.get("prompt", ""), int(asked.get("seed", 0))
        temperature, length = float(asked.get("temperature", 0.5)), int(asked.get("length", 400))
        seconds = float(asked.get("timeout_ms", 10_000)) / 1000
        if not (
            len(prompt) <= LONGEST_PROMPT
            and 0 <= seed < 2**64
            and 0 <= temperature <= 2
            and 0 < length <= LONGEST - LONGEST_PROMPT
            and 0 < seconds <= LONGEST_WAIT
        ):
            raise ValueError
    except ValueError:
        what = (
            f"expected a prompt of up to {LONGEST_PROMPT} characters, a seed from 0 on, a temperature up to 2, a length up to "
            f"{LONGEST - LONGEST_PROMPT}, and timeout_ms up to {LONGEST_WAIT * 1000:.0f}"
        )
        return JSONResponse({"error": what}, status_code=422)
    try:
        text = request.app.state.batcher.join(prompt, length=length, temperature=temperature, seed=seed)
    except Full:
        return JSONResponse({"error": "too many are waiting"}, status_code=503, headers={"Retry-After": "1"})
    except Closed:
        return JSONResponse({"error": "shutting down"}, status_code=503)
    return EventStream(text, seconds)


class EventStream(StreamingResponse):
    """A text as it comes, until it is whole, its time is over or its reader has gone; then it leaves the batch."""

    def __init__(self, text: Text, seconds: float) -> None:
        super().__init__(_events(text, seconds), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._text = text

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._text:
            await super().__call__(scope, receive, send)


async def _events(text: Text, seconds: float) -> AsyncIterator[str]:
    deadline, reason = asyncio.get_running_loop().time() + seconds, "length"
    try:
        while True:
            async with asyncio.timeout_at(deadline):
                added = await anext(text)
            yield f"data: {json.dumps({'text': added})}\n\n"
    except StopAsyncIteration:
        pass
    except TimeoutError:
        reason = "timeout"
    except Exception:
        logger.exception("a text has failed")
        reason = "error"
    yield f"event: end\ndata: {json.dumps({'reason': reason})}\n\n"


async def training(request: Request) -> Response:
    """``{"step": 7, "loss": 2.9, "seconds": 3.1, "gap_ms": 2.4}``: the last step, and the gap of 99 % of characters lately."""
    learner, batcher = request.app.state.learner, request.app.state.batcher
    if learner is None:
        return JSONResponse({"error": "it does not learn; start it with --train"}, status_code=404)
    gap = 1000 * float(np.quantile(batcher.gaps, 0.99)) if batcher.gaps else None
    return JSONResponse({**(learner.news[-1] if learner.news else {"step": 0}), "gap_ms": gap})


async def health(request: Request) -> Response:
    """Whether texts are written."""
    batcher = request.app.state.batcher
    return JSONResponse({"status": "ok", "device": str(aiodev.current_device()), "running": batcher.running})


async def metrics(request: Request) -> Response:
    """What Prometheus reads."""
    batcher = request.app.state.batcher
    lately = islice(reversed(request.app.state.lag.beats), LATELY)
    lags = np.array([beat.lag_ns for beat in lately] or [0]) / 1e9
    values = {
        "characters_total": batcher.added,
        "steps_total": batcher.steps,
        "texts_running": batcher.running,
        "texts_waiting": batcher.waiting,
        'gap_seconds{quantile="0.99"}': float(np.quantile(batcher.gaps, 0.99)) if batcher.gaps else 0.0,
        'loop_lag_seconds{quantile="0.5"}': float(np.quantile(lags, 0.5)),
        'loop_lag_seconds{quantile="0.99"}': float(np.quantile(lags, 0.99)),
        "device_memory_allocated_bytes": memory.memory_allocated(),
    }
    return PlainTextResponse("".join(f"{name} {value}\n" for name, value in values.items()))

"""The HTTP side: a page that shows how training goes, and the news of it as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

from model import load_data
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from training import Training, heartbeat

import aiodev

__all__ = ["make_app"]

SHOWN = 60  #: digits of the test that the page shows


def make_app(epochs: int = 20) -> Starlette:
    """The application; it trains once it has started."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.epochs = epochs
        app.state.data = await asyncio.to_thread(load_data)
        async with aiodev.device("cpu"), heartbeat() as app.state.lags:
            start(app, seed=0)
            yield
            app.state.task.cancel()
            await asyncio.wait([app.state.task])

    routes = [
        Route("/", page),
        Route("/digits", digits),
        Route("/events", events),
        Route("/state", state),
        Route("/train", train, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def start(app: Starlette, seed: int) -> None:
    """Begin a run, as a task."""
    training = app.state.training = Training(app.state.data, app.state.epochs, seed)

    async def run() -> None:
        async with aiodev.Stream():
            await training.run(app.state.lags)
        print(f"{100 * (training.accuracy or 0):.1f} % of the digits that it has not seen", flush=True)

    app.state.task = asyncio.create_task(run())


async def page(request: Request) -> Response:
    """Loss, accuracy, loop lag, and what it takes digits for."""
    return HTMLResponse(await asyncio.to_thread((Path(__file__).parent / "page.html").read_text))


async def digits(request: Request) -> Response:
    """Digits of the test: ``{"images": [[64 numbers from 0 to 1], …], "labels": […]}``."""
    images, labels = request.app.state.data.test
    return JSONResponse({"images": images[:SHOWN].reshape(SHOWN, 64).tolist(), "labels": labels[:SHOWN].tolist()})


async def events(request: Request) -> Response:
    """The news of this run, from the beginning; the last event is ``over``."""

    async def lines() -> AsyncIterator[str]:
        async for news in request.app.state.training.follow():
            yield f"data: {json.dumps(news | {'found': news['found'][:SHOWN]} if 'found' in news else news)}\n\n"
        yield "event: over\ndata: {}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def state(request: Request) -> Response:
    """``{"is_over": false, "seed": 0, "accuracy": 0.97, "failed": null}``"""
    training, task = request.app.state.training, request.app.state.task
    failed = repr(task.exception()) if task.done() and not task.cancelled() and task.exception() else None
    return JSONResponse(
        {"is_over": training.is_over, "seed": training.seed, "accuracy": training.accuracy, "failed": failed}
    )


async def train(request: Request) -> Response:
    """Train anew, from other parameters, once the run before is over."""
    training = request.app.state.training
    if not training.is_over:
        return JSONResponse({"error": "a run is under way"}, status_code=409)
    start(request.app, training.seed + 1)
    return JSONResponse({"seed": training.seed + 1}, status_code=202)

"""The HTTP side: a page, predictions with deadlines, health and metrics, and an end that drains."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
from batcher import Batcher, Closed
from network import FEATURES, Network, load_weights
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import aiodev
from aiodev import memory

__all__ = ["make_app"]

LONGEST_WAIT = 10.0  # seconds that a request may ask for


def make_app(wait: str = "await") -> Starlette:
    """The service; ``wait`` says how it waits for the device (see ``batcher.WAYS_TO_WAIT``)."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        weights = await asyncio.to_thread(load_weights)
        async with aiodev.device("cpu"), aiodev.Stream():
            network = Network(weights)
            await network.compile()
            app.state.batcher = Batcher(network, wait)
            app.state.lags = deque(maxlen=100_000)
            heartbeat = asyncio.create_task(_beat(app.state.lags))
            yield
            heartbeat.cancel()
            await app.state.batcher.aclose()

    routes = [
        Route("/", page),
        Route("/predict", predict, methods=["POST"]),
        Route("/health", health),
        Route("/metrics", metrics),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def page(request: Request) -> Response:
    """Where a person draws a digit."""
    return HTMLResponse(await asyncio.to_thread((Path(__file__).parent / "page.html").read_text))


async def predict(request: Request) -> Response:
    """``{"pixels": [64 numbers from 0 to 16], "timeout_ms": 250}`` → ``{"digit": 7, "probabilities": […], "ms": 0.8}``."""
    began = time.perf_counter()
    try:
        body = await request.json()
        image = np.array(body["pixels"], dtype=np.float32) / 16
        seconds = float(body.get("timeout_ms", 1000)) / 1000
        if image.shape != (FEATURES,) or not np.isfinite(image).all() or not 0 < seconds <= LONGEST_WAIT:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError):
        what = f"expected pixels, {FEATURES} numbers from 0 to 16, and timeout_ms up to {LONGEST_WAIT * 1000:.0f}"
        return JSONResponse({"error": what}, status_code=422)
    try:
        async with asyncio.timeout(seconds):
            probabilities = await _unless_gone(request, request.app.state.batcher.ask(image))
    except TimeoutError:
        return JSONResponse({"error": f"no answer within {seconds * 1000:.0f} ms"}, status_code=504)
    except Closed:
        return JSONResponse({"error": "shutting down"}, status_code=503)
    if probabilities is None:
        return Response(status_code=499)  # the client has gone; nobody reads this
    milliseconds = (time.perf_counter() - began) * 1000
    answer = {"digit": int(probabilities.argmax()), "probabilities": probabilities.tolist(), "ms": milliseconds}
    return JSONResponse(answer)


async def _unless_gone(request: Request, asking) -> np.ndarray | None:
    """The answer, or None when the client disconnects first; then the request is cancelled."""
    answer = asyncio.ensure_future(asking)
    gone = asyncio.ensure_future(request.receive())  # after the body the next message is the disconnection
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else None
    finally:
        gone.cancel()
        answer.cancel()


async def health(request: Request) -> Response:
    """Whether requests are answered."""
    batcher = request.app.state.batcher
    return JSONResponse({"status": "ok", "device": str(aiodev.current_device()), "waiting": len(batcher)})


async def metrics(request: Request) -> Response:
    """What Prometheus reads."""
    batcher, lags = request.app.state.batcher, np.array(request.app.state.lags or [0.0])
    values = {
        "digits_answered_total": batcher.answered,
        "digits_waiting": len(batcher),
        "digits_batch_size_mean": float(np.mean(batcher.sizes)) if batcher.sizes else 0.0,
        'loop_lag_seconds{quantile="0.5"}': float(np.quantile(lags, 0.5)),
        'loop_lag_seconds{quantile="0.99"}': float(np.quantile(lags, 0.99)),
        'loop_lag_seconds{quantile="1"}': float(lags.max()),
        "device_memory_allocated_bytes": memory.memory_allocated(),
    }
    return PlainTextResponse("".join(f"{name} {value}\n" for name, value in values.items()))


async def _beat(lags: deque[float]) -> None:
    """Note how late a 1 ms timer is."""
    while True:
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        lags.append(max(0.0, time.perf_counter() - before - 0.001))

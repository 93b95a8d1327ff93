"""Runs of the demo under the heartbeat: what they computed how fast, and how late the beats were."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import aiodev
from aiodev import profiler
from aiodev._demo.heartbeat import Lag
from aiodev._demo.pipeline import Pipeline, Wait
from aiodev._demo.scene import Scene
from aiodev._demo.waits import awaiting

__all__ = ["Result", "idle", "measure", "trace"]

#: How many tiles of each scene the traced run sends through.
TRACED_TILES = 12


@dataclass(slots=True)
class Result:
    """One row of the demo's table."""

    name: str
    seconds: list[float] = field(default_factory=list)  #: of each pass
    pixels: int = 0  #: of one pass
    lag: Lag = field(default_factory=Lag)

    @property
    def throughput(self) -> float:
        """Median over the passes, in megapixels per second; 0 when nothing was computed."""
        return self.pixels / statistics.median(self.seconds) / 1e6 if self.pixels else 0.0


async def idle(seconds: float) -> Result:
    """The heartbeat of a loop that has nothing else to do."""
    result = Result("nothing (idle loop)")
    began = time.perf_counter()
    async with profiler.loop_lag() as lag:
        await asyncio.sleep(seconds)
    result.seconds.append(time.perf_counter() - began)
    result.lag.extend(lag)
    return result


async def measure(
    result: Result,
    scenes: list[Scene],
    device: aiodev.Device,
    wait: Wait,
    advance: Callable[[], object],
    limit: int | None = None,
) -> None:
    """Send all scenes through at once, each by its own task and streams; add the time and the lag to ``result``."""
    pipelines = [Pipeline(scene, device) for scene in scenes]
    await aiodev.synchronize(device)
    async with profiler.loop_lag() as lag:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for pipeline in pipelines:
                tasks.create_task(pipeline.run(wait, advance, limit))
        result.seconds.append(time.perf_counter() - began)
    result.pixels = sum(min(limit or len(scene), len(scene)) * scene.size**2 for scene in scenes)
    result.lag.extend(lag)
    for pipeline in pipelines:
        await pipeline.aclose()


async def trace(scenes: list[Scene], device: aiodev.Device) -> profiler.Profile:
    """Send a few tiles of each scene through while every operation is noted by the device."""
    pipelines = [Pipeline(scene, device) for scene in scenes]
    await aiodev.synchronize(device)
    async with profiler.profile() as profile:
        async with asyncio.TaskGroup() as tasks:
            for pipeline in pipelines:
                tasks.create_task(pipeline.run(awaiting, int, TRACED_TILES))
        await aiodev.synchronize(device)
    for pipeline in pipelines:
        for stream, use in pipeline.streams.items():
            profile.names[stream] = f"{pipeline.scene.name}: {use}"
        await pipeline.aclose()
    return profile

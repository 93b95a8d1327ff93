"""Texts under the heartbeat: how fast they are written, by whom, and how late the beats are."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from aiodev import profiler
from aiodev._demo.heartbeat import Lag
from aiodev._demo.transformer import FIRST, LENGTH, NumPyText, Weights

__all__ = ["Result", "Step", "check", "idle", "threaded", "write"]

#: Gives the token after one at a place.
Step = Callable[[int, int], Awaitable[int]]

#: How far below the best score, in double precision, that of a token may be which was chosen in single precision.
TOLERANCE = 1e-3


@dataclass(slots=True)
class Result:
    """One row of the demo's table."""

    name: str
    rates: list[float] = field(default_factory=list)  #: tokens per second, of each turn
    lag: Lag = field(default_factory=Lag)
    texts: list[list[int]] = field(default_factory=list)  #: of the last turn

    @property
    def rate(self) -> float:
        """Median over the turns; 0 when nothing was written."""
        return statistics.median(self.rates) if self.rates else 0.0


def threaded(text: NumPyText) -> Step:
    """The step of a text by NumPy, in a thread: what one does that the loop goes on meanwhile."""

    async def step(token: int, place: int) -> int:
        return await asyncio.to_thread(text.step, token, place)

    return step


async def idle(seconds: float) -> Result:
    """The heartbeat of a loop that has nothing else to do."""
    result = Result("nothing (idle loop)")
    async with profiler.loop_lag() as lag:
        await asyncio.sleep(seconds)
    result.lag.extend(lag)
    return result


async def write(result: Result, steps: Sequence[Step], seconds: float) -> None:
    """Write texts at once, again and again, for about so long; add the rate and the lag to ``result``."""
    count = 0

    async def one(step: Step) -> list[int]:
        text = [FIRST]
        for place in range(LENGTH):
            text.append(await step(text[-1], place))
        return text

    async with profiler.loop_lag() as lag:
        now = began = time.perf_counter()
        while not count or now < began + seconds:
            result.texts = await asyncio.gather(*map(one, steps))
            now = time.perf_counter()
            count += LENGTH * len(steps)
    result.rates.append(count / (now - began))
    result.lag.extend(lag)


def check(weights: Weights, text: Sequence[int]) -> bool:
    """Whether each token of a text has, in double precision, the best score, or one that is as good in single precision."""
    reference = NumPyText(weights.astype("float64"))
    scores = [reference.scores(token, place) for place, token in enumerate(text[:-1])]
    return all(own[token] >= own.max() - TOLERANCE for own, token in zip(scores, text[1:], strict=True))

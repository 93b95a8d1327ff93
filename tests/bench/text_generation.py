"""The service that writes text, by its tokens: the transformer of examples/generate, and the same by others in threads.

Each step is awaited: ours as a replay and a read, the others' through ``asyncio.to_thread``, and all texts of a batch go one
character further with each. Everybody has the same weights, in ``float32``, and takes the best character; the first texts are
compared. All take turns, and the best of the others in each round is what counts. Peers that are not installed are named.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import numpy as np
from generate_peers import PEERS, Step, is_installed
from harness import Bar, Figure, Medians, Run

import aiodev
from aiodev import profiler
from aiodev._demo.program import busy_processes

GENERATE = Path(__file__).resolve().parents[2] / "examples" / "generate"
sys.path.insert(0, str(GENERATE))
try:
    from model import HEADS, Model, Slots, load_weights
finally:
    sys.path.remove(str(GENERATE))

__all__ = ["FIGURES"]

SESSIONS = (1, 8, 32)
#: Characters of a text, those of them that are compared, and seconds of a turn.
LENGTH, COMPARED, TURN = 128, 24, 0.5
BEST, IDLE = "the best of them", "idle loop"
#: ≥ so many times the best of the others: on an idle machine, and beside one busy process per core.
BARS = {1: 2.5, 8: 2.0, 32: 1.3}
CROWDED = 1.5


@functools.cache
def _weights() -> dict[str, np.ndarray]:
    return load_weights()


def _first(sessions: int) -> np.ndarray:
    """The first character of each text: letters."""
    return np.arange(sessions, dtype=np.int64) % 26 + 34


class Ours:
    """A batch of texts on a stream of its own."""

    def __init__(self, sessions: int) -> None:
        self.sessions, self.stream = sessions, aiodev.Stream("cpu")

    async def capture(self) -> Ours:
        """Capture a step, and what begins all texts anew."""
        with self.stream:
            self._slots = Slots(Model(_weights()), self.sessions)
            rows = aiodev.arange(self.sessions, dtype=np.int32)
            for session, code in enumerate(_first(self.sessions)):
                self._slots.begin(session, np.array([code], np.int32), 0.0, 0)
            async with aiodev.capture(self.stream) as self._step:
                self._tokens = self._slots.model.submit(rows, self._slots)
            async with aiodev.capture(self.stream) as self._again:
                self._slots.position[:] = 0
        return self

    async def step(self, place: int) -> np.ndarray:
        """The next character of each text."""
        if not place:
            self._again.replay(self.stream)
        self._step.replay(self.stream)
        return await self._tokens.numpy()


class Threaded:
    """A batch of texts by somebody else."""

    def __init__(self, sessions: int, step: Step) -> None:
        self.sessions, self._step, self._codes = sessions, step, _first(sessions)

    async def step(self, place: int) -> np.ndarray:
        """The next character of each text."""
        if not place:
            self._codes = _first(self.sessions)
        self._codes = await asyncio.to_thread(self._step, self._codes, place)
        return self._codes


Batch = Ours | Threaded


async def write(batch: Batch, run: Run, note: Callable[[float], object] = lambda seconds: None) -> float:
    """Write texts for a turn; characters per second. ``note`` is told how long each took."""
    length = 8 if run.smoke else LENGTH
    seconds, count = 0.0 if run.smoke else TURN, 0
    now = began = time.perf_counter()
    while not count or now < began + seconds:
        for place in range(length):
            await batch.step(place)
            before, now = now, time.perf_counter()
            note(now - before)
        count += length
    return batch.sessions * count / (now - began)


async def contestants(sessions: int) -> tuple[dict[str, Batch], list[str]]:
    """Everybody's batch, of whom the first texts are the same; and who is missing."""
    await aiodev.init("cpu")
    found: dict[str, Batch] = {"aiodev": await Ours(sessions).capture()}
    for name, (packages, make) in PEERS.items():
        if all(map(is_installed, packages)):
            found[name] = Threaded(sessions, make(_weights(), HEADS, sessions, LENGTH))
    texts = {name: np.array([await batch.step(place) for place in range(COMPARED)]) for name, batch in found.items()}
    wrong = [name for name, text in texts.items() if (text != texts["aiodev"]).any()]
    assert not wrong, f"other texts: {wrong}"
    return found, sorted({p for packages, _ in PEERS.values() for p in packages if not is_installed(p)})


async def rates(sessions: int, beside: int, run: Run) -> Figure:
    """Characters per second of so many texts, beside so many busy processes."""
    found, missing = await contestants(sessions)
    with busy_processes(beside):
        values = await run.medians({name: functools.partial(write, batch, run) for name, batch in found.items()})
    _add_best(values)
    least = CROWDED if beside else BARS[sessions]
    crowd = f", beside {beside} busy processes" if beside else ""
    note = f"not installed: {', '.join(missing)}" if missing else ""
    return Figure(f"{_texts(sessions)}{crowd}", "tokens/s", values, [Bar(BEST, at_least=least)], note)


def _texts(sessions: int) -> str:
    return f"{sessions} text{'s' if sessions > 1 else ''} at once"


def _add_best(values: Medians) -> None:
    """The best of the others, in each round."""
    others = [name for name in values if name != "aiodev"]
    best = [max(turn) for turn in zip(*(values.rounds[name] for name in others), strict=True)]
    values.rounds = dict(values.rounds) | {BEST: best}
    values[BEST] = float(np.median(best))


@numba.njit(nogil=True)
def _compute(count: int) -> float:
    value = 0.0
    for i in range(count):
        value = value * 0.5 + i
    return value


def _loops_percentile(seconds: float, run: Run) -> float:
    """The 99th percentile (s) of what a step would take that is two loops of so long as a rule, one on each core.

    It is what the machine adds, which takes cores away now and then: the more often, the more of them are in use.
    """

    def took(until: float = 0) -> list[float]:
        times: list[float] = []
        while not times or time.perf_counter() < until:
            began = time.perf_counter()
            _compute(count)
            times.append(time.perf_counter() - began)
        return times

    count = 1000
    took()  # which compiles it
    while min(took()[0] for _ in range(3)) < seconds:
        count += count // 8
    end = time.perf_counter() + (0 if run.smoke else TURN)
    with ThreadPoolExecutor(2) as pool:
        pairs = zip(*[each.result() for each in [pool.submit(took, end) for _ in range(2)]], strict=False)
        return float(np.percentile([max(pair) for pair in pairs], 99))


async def pace(sessions: int, run: Run) -> Figure:
    """The time from one character to the next of so many texts: its 99th percentile, beside its median."""
    batch, times = await Ours(sessions).capture(), []

    async def ours() -> float:
        times.clear()
        await write(batch, run, times.append)
        return float(np.percentile(times, 99)) * 1e6

    cases = {"aiodev": ours, "median": lambda: float(np.median(times)) * 1e6}
    cases |= {"two loops of that length, 99 %": lambda: _loops_percentile(float(np.median(times)), run) * 1e6}
    values = await run.medians(cases)
    return Figure(f"between tokens, 99 %, {_texts(sessions)}", "µs", values, [Bar("median", at_most=2.0)])


async def lag(sessions: int, run: Run) -> Figure:
    """How late timers of the loop are that has so many texts written, beside an idle one, and one whose texts NumPy writes."""
    batches = {"aiodev": await Ours(sessions).capture()}
    batches["NumPy"] = Threaded(sessions, PEERS["NumPy"][1](_weights(), HEADS, sessions, LENGTH))

    def late_by(work: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[float]]:
        async def measured() -> float:
            async with profiler.loop_lag() as beats:
                await work()
            return beats.percentile(99) * 1e3

        return measured

    cases = {name: late_by(functools.partial(write, batch, run)) for name, batch in batches.items()}
    values = await run.medians(cases | {IDLE: late_by(lambda: asyncio.sleep(0.01 if run.smoke else TURN))})
    return Figure(f"loop lag, 99 %, {_texts(sessions)}", "ms", values, [Bar(IDLE, within=1.0)])


def _figure(measure: Callable[..., Any], *sizes: int) -> Callable[[Run], Any]:
    return lambda run: measure(*sizes, run)


_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
FIGURES = {
    **{f"texts-{n}": _figure(rates, n, 0) for n in SESSIONS},
    **{f"texts-{n}-crowded": _figure(rates, n, _CORES) for n in SESSIONS},
    **{f"pace-{n}": _figure(pace, n) for n in SESSIONS},
    **{f"text-lag-{n}": _figure(lag, n) for n in SESSIONS},
}

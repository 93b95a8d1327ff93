"""Measuring one thing next to its peers, in one run, in turns; tables and JSON of the outcome.

A time by itself says little: the machines are shared and noisy, and change from second to second. So a figure is always a
ratio to a peer that was measured in the same round, and what counts is the median of the rounds' ratios. They also change from
one quarter of an hour to the next, and a figure's rounds follow each other within seconds: so all figures may be measured in
several passes, of which the median counts again.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiodev

__all__ = [
    "Bar",
    "Case",
    "Figure",
    "LeftOut",
    "Medians",
    "Run",
    "format_value",
    "measure",
    "print_table",
    "rst_of",
    "write_json",
    "write_rst",
]

#: Measures once and returns the figure, in its unit; a function or a coroutine function.
Case = Callable[[], float | Awaitable[float]]


class LeftOut(Exception):
    """A figure that cannot be measured on this machine, which is no failure; says why."""


#: Seconds between two figures.
PAUSE = 2.0


@dataclass(frozen=True, slots=True)
class Bar:
    """What is to be reached: ours, divided by the peer's, at most or at least so much; or no more than ``within`` above it."""

    peer: str
    at_most: float | None = None
    at_least: float | None = None
    within: float | None = None
    case: str = "aiodev"  #: which of our values

    def __str__(self) -> str:
        which = "" if self.case == "aiodev" else f"{self.case}: "
        if self.within is not None:
            return f"{which}≤ {self.peer} + {self.within:.3g}"
        limit = f"≤ {self.at_most:.3g}" if self.at_most is not None else f"≥ {self.at_least:.3g}"
        return f"{which}{limit} × {self.peer}"

    def met(self, measured: float) -> bool:
        """Whether what :meth:`Figure.measured` gives reaches it."""
        most = self.at_most if self.within is None else self.within
        return measured <= most if most is not None else measured >= (self.at_least or 0.0)


class Medians(dict[str, float]):
    """Medians over the rounds, by case."""

    rounds: Mapping[str, list[float]] = MappingProxyType({})  #: what each of them gave


@dataclass(slots=True)
class Figure:
    """One row: aiodev's value, its peers' values, and the bars."""

    name: str
    unit: str
    values: dict[str, float]  #: medians by case; aiodev's own case is called "aiodev"
    bars: list[Bar] = field(default_factory=list)
    note: str = ""
    passes: list[Figure] = field(default_factory=list)  #: the same, of each pass, if there were several

    @classmethod
    def over(cls, passes: list[Figure]) -> Figure:
        """The figure over several passes: medians of what each of them gave."""
        first = passes[0]
        values = {name: statistics.median(each.values[name] for each in passes) for name in first.values}
        return cls(first.name, first.unit, values, first.bars, first.note, passes)

    def measured(self, bar: Bar) -> float:
        """Ours, divided by that peer's, or how far it is above: the median over the rounds, where these have both."""
        if self.passes:
            return statistics.median(each.measured(bar) for each in self.passes)
        rounds = self.values.rounds if isinstance(self.values, Medians) else {}
        if bar.case in rounds and bar.peer in rounds:
            both = list(zip(rounds[bar.case], rounds[bar.peer], strict=True))
        else:
            both = [(self.values[bar.case], self.values[bar.peer])]
        if bar.within is not None:
            return statistics.median(ours - peer for ours, peer in both)
        return statistics.median(ours / peer if peer else float("inf") for ours, peer in both)

    def formatted(self, bar: Bar) -> str:
        """What was measured, and of several passes the least and the most."""
        return _formatted(self.measured(bar), [each.measured(bar) for each in self.passes])


@dataclass(frozen=True, slots=True)
class Run:
    """How thoroughly to measure."""

    smoke: bool
    repeats: int
    passes: int = 1

    def scale(self, count: int) -> int:
        """``count``, or a hundredth of it (at least 8) in a smoke run."""
        return max(8, count // 100) if self.smoke else count

    async def medians(
        self, cases: dict[str, Case], repeats: int | None = None, pause: float = 0.0
    ) -> Medians:
        """Run all cases once to warm up, then in turns, ``pause`` seconds apart; the median of each."""
        samples: dict[str, list[float]] = {name: [] for name in cases}
        for turn in range(1 + (1 if self.smoke else repeats or self.repeats)):
            for name, case in cases.items():
                outcome = case()
                value = await outcome if inspect.isawaitable(outcome) else outcome
                if turn:
                    samples[name].append(value)
                await asyncio.sleep(0 if self.smoke else pause)
        found = Medians((name, statistics.median(values)) for name, values in samples.items())
        found.rounds = samples
        return found


async def measure(figures: Mapping[str, Callable[[Run], Awaitable[Figure]]], run: Run) -> dict[str, Figure]:
    """Measure figures, printing each as it comes; without those that cannot be measured here, which is said."""
    passes: dict[str, list[Figure]] = {name: [] for name in figures}
    for _ in range(run.passes):
        for name, figure in figures.items():
            try:
                passes[name].append(await figure(run))
            except LeftOut as reason:
                print(f"\n{name}: left out: {reason}")
                continue
            # What peers leave behind, such as threads of a BLAS that spin, counts as other processes for a while.
            await asyncio.sleep(0 if run.smoke else PAUSE)
            print_table(passes[name][-1:], run)
    if run.passes == 1:
        return {name: found[0] for name, found in passes.items() if found}
    print(f"\n\nMedians of {run.passes} passes")
    over = {name: Figure.over(found) for name, found in passes.items() if found}
    print_table(list(over.values()), run)
    return over


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
    }


def versions() -> dict[str, str]:
    """Versions of what takes part."""
    found = {"python": platform.python_version(), "aiodev": aiodev.__version__}
    for name in ("numpy", "numba", "anyio"):
        found[name] = metadata.version(name)
    return found | {name: metadata.version(name) for name in ("torch", "onnxruntime", "jax") if name in sys.modules}


def settings() -> dict[str, str]:
    """The settings of aiodev that were given through the environment."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith("AIODEV_")}


def print_table(figures: list[Figure], run: Run) -> None:
    """Print each figure with its peers and, unless the run is a smoke run, whose figures mean nothing, its bars."""
    for figure in figures:
        print(f"\n{figure.name}{f'  ({figure.note})' if figure.note else ''}")
        width = max(map(len, figure.values))
        for name, value in figure.values.items():
            print(f"    {name:{width}}  {format_value(value):>10} {figure.unit}")
        for bar in figure.bars if not run.smoke else ():
            print(f"    bar {bar}: {figure.formatted(bar)} — {'met' if bar.met(figure.measured(bar)) else 'MISSED'}")
    sys.stdout.flush()


def _formatted(measured: float, passes: list[float]) -> str:
    spread = f" [{format_value(min(passes))} to {format_value(max(passes))}]" if passes else ""
    return format_value(measured) + spread


def format_value(value: float) -> str:
    """Three significant digits."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def document(figures: list[Figure], run: Run) -> dict[str, Any]:
    """Everything that is needed to read the figures later."""
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "run": asdict(run),
        "machine": machine(),
        "versions": versions(),
        "settings": settings(),
        "figures": [asdict(figure) | {"measured": _measured(figure)} for figure in figures],
    }


def write_json(path: Path, figures: list[Figure], run: Run) -> None:
    """Write the figures' document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(figures, run), indent=2, ensure_ascii=False) + "\n")


def _measured(figure: Figure) -> list[dict[str, object]]:
    return [
        {
            "bar": str(bar),
            "measured": figure.measured(bar),
            "passes": [each.measured(bar) for each in figure.passes],
            "met": bar.met(figure.measured(bar)),
        }
        for bar in figure.bars
    ]


def write_rst(path: Path, figures: list[Figure], run: Run) -> None:
    """Write the table that docs/performance shows."""
    path.write_text(rst_of(document(figures, run)))


def rst_of(found: Mapping[str, Any], device: str = "") -> str:
    """The table of a document of figures; ``device`` is what they were measured on, beside the host."""
    where, run = found["machine"], found["run"]
    passes = f"{run['passes']} passes of " if run["passes"] > 1 else ""
    load = "" if where["load"] is None else f"; load average {where['load']:.1f} at the end"
    lines = [
        ".. Written by tests/bench; not by hand.",
        "",
        (f"{device}; " if device else "")
        + f"{where['processor']}, {where['cores']} cores, {found['when'][:10]}; "
        + ", ".join(f"{name} {version}" for name, version in found["versions"].items())
        + f"; medians of {passes}{run['repeats']} rounds{load}.",
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: 30 12 34 24",
        "",
        "   * - figure",
        "     - aiodev",
        "     - peers",
        "     - measured (bar)",
    ]
    for figure in found["figures"]:
        unit, values, note = figure["unit"], figure["values"], figure["note"]
        peers = [f"{name}: {format_value(value)} {unit}" for name, value in values.items() if name != "aiodev"]
        ratios = [
            f"{_formatted(bar['measured'], bar['passes'])} ({bar['bar']}; {'met' if bar['met'] else '**missed**'})"
            for bar in figure["measured"]
        ]
        lines += [
            f"   * - {figure['name']}{f' ({note})' if note else ''}",
            f"     - {format_value(values['aiodev'])} {unit}",
            f"     - {'; '.join(peers)}",
            f"     - {'; '.join(ratios)}",
        ]
    return "\n".join(lines) + "\n"

"""Quotas: the shapes of work of ``crowded``, awaited in a process that may use one core, or half of one.

Each figure is measured by a process of its own, in a control group that is made for it. What counts is what counts there.
Turns take several periods of the quota, so that both ways are throttled alike. Where no such group can be made, which takes
rights, there are no such figures.

A process may have one core by its affinity, too. There threads never run beside each other, as with a quota they may.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from crowded import SHAPES, measure
from harness import Figure, LeftOut, Run

sys.path.append(str(Path(__file__).parent.parent / "support"))

from quota_group import NoGroupError, quota_group

__all__ = ["FIGURES"]

CORES = (1.0, 0.5)
#: Seconds of a turn: four periods.
TURN = 0.4


def measured(shape: str, run: Run, where: str) -> Figure:
    """Measure a shape of work in this process, which the group's quota is for."""
    return asyncio.run(measure(shape, run, where, seconds=TURN))


async def limited(shape: str, cores: float, run: Run) -> Figure:
    """One shape of work with a quota."""
    where, spawned = f"with a quota of {cores} cores", multiprocessing.get_context("spawn")
    try:
        with quota_group() as group:
            group.limit(cores)
            with ProcessPoolExecutor(1, spawned, group.join) as pool:
                return await asyncio.get_running_loop().run_in_executor(pool, measured, shape, run, where)
    except NoGroupError as reason:
        raise LeftOut(str(reason)) from None


def stay_on_one_core() -> None:
    """Let this process run on one core alone."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


async def pinned(shape: str, run: Run) -> Figure:
    """One shape of work on a single core."""
    if not hasattr(os, "sched_setaffinity"):
        raise LeftOut("the system does not let a process choose its cores")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), stay_on_one_core) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, measured, shape, run, "on a single core")


def _pinned(shape: str) -> Callable[[Run], Any]:
    return lambda run: pinned(shape, run)


def _figure(shape: str, cores: float) -> Callable[[Run], Any]:
    return lambda run: limited(shape, cores, run)


FIGURES = {f"{shape}-quota-{cores}": _figure(shape, cores) for shape in SHAPES for cores in CORES} | {
    f"{shape}-one-core": _pinned(shape) for shape in SHAPES
}

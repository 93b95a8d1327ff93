"""Quotas: the shapes of work of ``crowded``, awaited in a process that may use one core, or half of one.

Each figure is measured by a process of its own, in a control group that is made for it. What counts is what counts there.
Turns take several periods of the quota, so that both ways are throttled alike. Where no such group can be made, which takes
rights, there are no such figures.
"""

from __future__ import annotations

import asyncio
import multiprocessing
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


def _figure(shape: str, cores: float) -> Callable[[Run], Any]:
    return lambda run: limited(shape, cores, run)


FIGURES = {f"{shape}-quota-{cores}": _figure(shape, cores) for shape in SHAPES for cores in CORES}

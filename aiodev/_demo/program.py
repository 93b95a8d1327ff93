"""What ``python -m aiodev demo`` does, from reading the data to the table."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread
from tqdm import tqdm

import aiodev
from aiodev._demo.measure import Result, idle, measure, trace
from aiodev._demo.pictures import draw_scene
from aiodev._demo.reference import TOLERANCE, Check, Expected
from aiodev._demo.scene import Scene, load_scenes
from aiodev._demo.waits import WAYS, awaiting

__all__ = ["FULL", "QUICK", "Amount", "demo"]


@dataclass(frozen=True, slots=True)
class Amount:
    """How much work the demo makes of its input."""

    zoom: int  #: enlargement of both fields, each way
    size: int  #: rows and columns of a tile
    radius: int  #: of the blur, in cells
    passes: int  #: how often each way of waiting sends everything through


FULL = Amount(zoom=6, size=256, radius=15, passes=8)
QUICK = Amount(zoom=1, size=128, radius=5, passes=1)


async def demo(directory: Path, amount: Amount, device: aiodev.DeviceLike = "cpu") -> int:
    """Run the demo, write its pictures to ``directory``, which exists, and print its table; returns the exit status."""
    async with aiodev.device(device):
        where = aiodev.current_device()
        scenes = await to_thread.run_sync(load_scenes, amount.zoom, amount.size, amount.radius)
        _introduce(scenes, amount, where)

        began = time.perf_counter()
        first = Result("first launch, compiling")
        await measure(first, scenes, where, awaiting, int, 1)
        print(
            f"  first tiles, kernels compiled or loaded from the disk cache: {time.perf_counter() - began:.2f} s, "
            f"worst heartbeat lag meanwhile {first.lag.worst:.1f} ms\n"
        )

        results = [await idle(0.5 if amount is FULL else 0.1)]
        expected = [await to_thread.run_sync(Expected, scene) for scene in scenes]
        checks: list[Check] = []
        rows = {way.name: Result(way.name) for way in WAYS}
        total = amount.passes * len(WAYS) * sum(map(len, scenes))
        with tqdm(total=total, unit="tile", mininterval=0.1, file=sys.stderr) as bar:
            # The ways take turns, so that a slow spell of the machine falls on all of them.
            for remaining in reversed(range(amount.passes)):
                for way in WAYS:
                    bar.set_description(way.name)
                    for scene in scenes:
                        scene.clear()
                    await measure(rows[way.name], scenes, where, way.wait, bar.update)
                    if not remaining:
                        checks += await to_thread.run_sync(_check_all, way.name, expected)
        results += rows.values()
        traced = await trace(scenes, where)

    _print_table(results)
    _print_checks(checks)
    written = [path for scene in scenes for path in await to_thread.run_sync(draw_scene, scene, directory)]
    written.append(await to_thread.run_sync(traced.timeline, directory / "timeline.png"))
    print("\npictures:", *(f"  {path}" for path in written), sep="\n")
    return 0 if all(check.passed for check in checks) else 1


def _check_all(way: str, expected: list[Expected]) -> list[Check]:
    return [Check(f"{way}, {result.name}", result.error) for results in expected for result in results.check()]


def _introduce(scenes: list[Scene], amount: Amount, device: aiodev.Device) -> None:
    print(f"aiodev demo on {device} ({aiodev.get_device_name(device)})\n")
    for scene in scenes:
        rows, columns = scene.height.shape
        print(
            f"  {scene.name:11} {columns // amount.zoom} × {rows // amount.zoom} cells, enlarged {amount.zoom} times "
            f"to {columns} × {rows} for the work to last: {len(scene)} tiles of {amount.size} × {amount.size} "
            f"with a halo of {scene.halo}"
        )
    print(
        f"\n  each tile: copy in → blur ({len(scenes[0].weights)} × {len(scenes[0].weights)}) → gradient → hillshade "
        f"→ copy out; {amount.passes} passes each way\n"
    )


def _print_table(results: list[Result]) -> None:
    heading = f"{'median':>7} {'p99':>7} {'worst':>7}"
    print(f"\n{'waiting':26} {'Mpixel/s':>9} {'beats':>7}   heartbeat lag in ms: {heading}")
    for result in results:
        throughput = f"{result.throughput:9.1f}" if result.pixels else f"{'–':>9}"
        lag = result.lag
        print(
            f"{result.name:26} {throughput} {lag.count:7}   {'':20} "
            f"{lag.percentile(50):7.2f} {lag.percentile(99):7.2f} {lag.worst:7.2f}"
        )


def _print_checks(checks: list[Check]) -> None:
    print(f"\nagainst NumPy in double precision (largest difference, relative; at most {TOLERANCE:g}):")
    for result in checks:
        print(f"  {'ok' if result.passed else 'WRONG':6} {result.name:44} {result.error:.1e}")

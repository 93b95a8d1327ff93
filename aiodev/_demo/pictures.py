"""The demo's pictures: what was computed, and which operation ran when on which stream."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.patches import Patch

from aiodev._demo.heartbeat import PERIOD
from aiodev._demo.measure import TracedRun
from aiodev._demo.scene import Floats, Scene

__all__ = ["draw_scene", "draw_timeline"]

LARGEST = 1600  #: rows or columns of a picture


def draw_scene(scene: Scene, directory: Path) -> list[Path]:
    """Write the scene's relief (its heights in colour, shaded) and its slopes as PNGs.

    Of a large scene every second, third … cell is drawn, so that no picture has more than ``LARGEST`` rows or columns.
    """
    relief, slope = directory / f"{scene.name}-relief.png", directory / f"{scene.name}-slope.png"
    step = -(-max(scene.height.shape) // LARGEST)
    height, slopes, shade = (
        field[::step, ::step] for field in (scene.height, scene.crop(scene.slope), scene.crop(scene.shade))
    )
    if scene.name == "elevation":
        colour = colormaps["gist_earth"](0.25 + 0.75 * _unit(height))[..., :3]  # its lowest quarter is for seas
    else:
        colour = colormaps["gray"](_unit(height))[..., :3]
    imsave(relief, np.clip(colour * (0.25 + shade[..., None]), 0.0, 1.0))
    imsave(slope, _unit(slopes), cmap="magma")
    return [relief, slope]


def draw_timeline(run: TracedRun, path: Path) -> Path:
    """Write the streams' timeline, one row a stream, with the heartbeat's lag under it."""
    first = min(activity.start_ns for activity in run.activities)
    last = max(activity.end_ns for activity in run.activities)
    names = sorted({activity.name for activity in run.activities})
    colours = {name: colormaps["tab10"](number) for number, name in enumerate(names)}
    rows = {stream: row for row, stream in enumerate(run.streams)}

    figure = Figure(figsize=(14, 7), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    for activity in run.activities:
        if activity.stream_id in rows:
            start, length = (activity.start_ns - first) / 1e6, (activity.end_ns - activity.start_ns) / 1e6
            # The edge keeps an operation of a few µs visible.
            colour = colours[activity.name]
            above.barh(rows[activity.stream_id], length, left=start, height=0.7, color=colour, edgecolor=colour, lw=0.4)
    above.set_yticks(list(rows.values()), list(run.streams.values()))
    above.invert_yaxis()
    above.set_title("Operations by stream, as stamped by the device", loc="left")
    handles = [Patch(color=colours[name], label=name) for name in names]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))

    beats = (np.array(run.heartbeat.times) - first) / 1e6
    below.stem(beats, run.heartbeat.late_ms, basefmt=" ", markerfmt=".")
    below.set_ylabel("lag of the loop's\n1 ms heartbeat (ms)")
    below.set_ylim(0, max(2.0, 1.1 * max(run.heartbeat.late_ms, default=0.0)))
    below.set_xlim(-1e3 * PERIOD, (last - first) / 1e6 + 1e3 * PERIOD)
    below.set_xlabel("ms")
    figure.savefig(path, dpi=120)
    return path


def _unit(field: Floats) -> Floats:
    """Stretch to 0 … 1, cutting off the outermost half percent on both sides."""
    low, high = np.percentile(field, (0.5, 99.5))
    stretched: Floats = np.clip((field - low) / max(high - low, 1e-9), 0.0, 1.0)
    return stretched

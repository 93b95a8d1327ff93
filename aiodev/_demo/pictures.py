"""The demo's pictures of what was computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.image import imsave

from aiodev._demo.scene import Floats, Scene

__all__ = ["draw_scene"]

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


def _unit(field: Floats) -> Floats:
    """Stretch to 0 … 1, cutting off the outermost half percent on both sides."""
    low, high = np.percentile(field, (0.5, 99.5))
    stretched: Floats = np.clip((field - low) / max(high - low, 1e-9), 0.0, 1.0)
    return stretched

"""The demo's input: the elevation model and the photograph that ship in matplotlib's wheel."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import matplotlib.cbook
import numpy as np
import numpy.typing as npt
from PIL import Image

__all__ = ["Floats", "Scene", "Tile", "gaussian", "load_scenes"]

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Tile:
    """One square of a scene: what to read, halo included, and where the results go."""

    source: Floats  #: (size + 2 * halo, size + 2 * halo), a view of the padded scene
    slope: Floats  #: (size, size), views of the scene's results
    shade: Floats


@dataclass(slots=True)
class Scene:
    """A height field, cut into tiles, and room for what is computed from it.

    Attributes:
        name: names its pictures.
        height: the whole field, (rows, columns) float32.
        scale: what central differences along x and y are multiplied with: exaggeration / (2 * cell size).
        weights: the blur's weights, symmetric, an odd number of them.
        size: rows and columns of a tile.
    """

    name: str
    height: Floats
    scale: tuple[float, float]
    weights: Floats
    size: int
    light: tuple[float, float, float] = (-0.5, -0.5, math.sqrt(0.5))  #: to the light: from the north-west, at 45°
    padded: Floats = field(init=False)
    slope: Floats = field(init=False)
    shade: Floats = field(init=False)

    def __post_init__(self) -> None:
        rows, columns = self.height.shape
        # The border repeats the edge. Rows and columns are filled up to whole tiles, so that one shape serves all.
        fill = [(self.halo, self.halo + -length % self.size) for length in (rows, columns)]
        self.padded = np.pad(self.height, fill, mode="edge")
        whole = (self.padded.shape[0] - 2 * self.halo, self.padded.shape[1] - 2 * self.halo)
        self.slope = np.zeros(whole, np.float32)
        self.shade = np.zeros(whole, np.float32)

    @property
    def halo(self) -> int:
        """Cells around a tile that its results depend on: half the blur, and one for the gradient."""
        return len(self.weights) // 2 + 1

    def __len__(self) -> int:
        rows, columns = self.slope.shape
        return int(rows // self.size) * int(columns // self.size)

    def tiles(self) -> Iterator[Tile]:
        """Every tile, row by row."""
        reach = self.size + 2 * self.halo
        for top in range(0, self.slope.shape[0], self.size):
            for left in range(0, self.slope.shape[1], self.size):
                inner = (slice(top, top + self.size), slice(left, left + self.size))
                source = self.padded[top : top + reach, left : left + reach]
                yield Tile(source, self.slope[inner], self.shade[inner])

    def crop(self, result: Floats) -> Floats:
        """A result without the cells that were only filled in."""
        rows, columns = self.height.shape
        cropped: Floats = result[:rows, :columns]
        return cropped

    def clear(self) -> None:
        """Forget the results, so that a run cannot pass on those of the one before."""
        self.slope[:] = np.nan
        self.shade[:] = np.nan


def gaussian(radius: int) -> Floats:
    """Weights of a Gaussian blur that reaches ``radius`` cells to each side; their sum is 1."""
    x = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (x / (radius / 3)) ** 2)
    normalised: Floats = (weights / weights.sum()).astype(np.float32)
    return normalised


def load_scenes(zoom: int, size: int, radius: int) -> list[Scene]:
    """The elevation model and the photograph, both enlarged ``zoom`` times by bicubic interpolation."""
    return [_elevation(zoom, size, radius), _photograph(zoom, size, radius)]


def _elevation(zoom: int, size: int, radius: int) -> Scene:
    with np.load(matplotlib.cbook.get_sample_data("jacksboro_fault_dem.npz", asfileobj=False)) as dem:
        height = dem["elevation"].astype(np.float32)
        latitude = 0.5 * (float(dem["ymin"]) + float(dem["ymax"]))
        metres = 111_200.0  # of a degree of latitude
        dx = metres * float(dem["dx"]) * math.cos(math.radians(latitude)) / zoom
        dy = metres * float(dem["dy"]) / zoom
    exaggeration = 3.0
    scale = (exaggeration / (2 * dx), exaggeration / (2 * dy))
    return Scene("elevation", _enlarge(height, zoom), scale, gaussian(radius), size)


def _photograph(zoom: int, size: int, radius: int) -> Scene:
    with Image.open(matplotlib.cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)) as photo:
        brightness = np.asarray(photo.convert("L"), np.float32)
    # Brightness, 0 to 255, read as height: 16 levels rise as much as a cell of the original is wide.
    scale = zoom / (2 * 16.0)
    return Scene("photograph", _enlarge(brightness, zoom), (scale, scale), gaussian(radius), size)


def _enlarge(field: Floats, zoom: int) -> Floats:
    rows, columns = field.shape
    picture = Image.fromarray(field).resize((columns * zoom, rows * zoom), Image.Resampling.BICUBIC)
    return np.asarray(picture, np.float32)

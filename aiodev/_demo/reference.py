"""The same pictures by NumPy, over whole scenes, in double precision: what the demo's results are checked against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aiodev._demo.scene import Floats, Scene

__all__ = ["Check", "Expected"]

Doubles = npt.NDArray[np.float64]

#: Largest difference allowed, relative to the largest value: float32 keeps about 1e-7 of each term, the differences of
#: neighbouring heights lose two to three digits of it.
TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Check:
    """How far one result is from NumPy's."""

    name: str
    error: float  #: largest absolute difference, over the largest absolute value; NaN where a cell was not computed

    @property
    def passed(self) -> bool:
        """Whether the difference is within ``TOLERANCE``; False for NaN."""
        return self.error <= TOLERANCE


class Expected:
    """What a scene's results should be.

    Attributes:
        slope: as ``Scene.slope``, in double precision.
        shade: as ``Scene.shade``, in double precision.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        height = _blur(_blur(scene.padded.astype(np.float64), scene.weights, axis=1), scene.weights, axis=0)
        x = (height[1:-1, 2:] - height[1:-1, :-2]) * scene.scale[0]
        y = (height[2:, 1:-1] - height[:-2, 1:-1]) * scene.scale[1]
        light_x, light_y, light_z = scene.light
        shade = (light_z - x * light_x - y * light_y) / np.sqrt(x * x + y * y + 1.0)
        self.slope: Doubles = np.hypot(x, y)
        self.shade: Doubles = np.maximum(shade, 0.0)

    def check(self) -> list[Check]:
        """Compare the scene's present results with these."""
        scene = self._scene
        return [
            Check(f"{scene.name}: slope", _distance(scene.slope, self.slope)),
            Check(f"{scene.name}: shade", _distance(scene.shade, self.shade)),
        ]


def _blur(field: Doubles, weights: Floats, axis: int) -> Doubles:
    length = field.shape[axis] - len(weights) + 1
    total = np.zeros([length if n == axis else size for n, size in enumerate(field.shape)])
    for k, weight in enumerate(weights):
        total += weight * (field[:, k : k + length] if axis else field[k : k + length])
    return total


def _distance(result: Floats, expected: Doubles) -> float:
    return float(np.max(np.abs(result - expected)) / np.max(np.abs(expected)))

"""Kernels that shade a picture: a separable blur, the gradient of a height field, and its shading by a distant light."""

from __future__ import annotations

import math
from typing import Any

import aiodev

__all__ = ["blur_columns", "blur_rows", "gradient", "hillshade"]


@aiodev.kernel(ndim=2)
def blur_rows(i: int, j: int, image: Any, weights: Any, out: Any) -> None:
    """Weighted mean of ``len(weights)`` neighbours along a row; ``out`` is that many columns less one narrower."""
    total = image[i, j] * weights[0]
    for k in range(1, weights.shape[0]):
        total += image[i, j + k] * weights[k]
    out[i, j] = total


@aiodev.kernel(ndim=2)
def blur_columns(i: int, j: int, image: Any, weights: Any, out: Any) -> None:
    """The same along a column."""
    total = image[i, j] * weights[0]
    for k in range(1, weights.shape[0]):
        total += image[i + k, j] * weights[k]
    out[i, j] = total


@aiodev.kernel(ndim=2)
def gradient(i: int, j: int, height: Any, scale_x: float, scale_y: float, gx: Any, gy: Any, slope: Any) -> None:
    """Central differences of ``height``, which has a border of one cell, and their length."""
    x = (height[i + 1, j + 2] - height[i + 1, j]) * scale_x
    y = (height[i + 2, j + 1] - height[i, j + 1]) * scale_y
    gx[i, j] = x
    gy[i, j] = y
    slope[i, j] = math.sqrt(x * x + y * y)


@aiodev.kernel(ndim=2)
def hillshade(i: int, j: int, gx: Any, gy: Any, light_x: float, light_y: float, light_z: float, shade: Any) -> None:
    """Cosine between the surface's normal and the direction to the light; 0 where it faces away."""
    x = gx[i, j]
    y = gy[i, j]
    cosine = (light_z - x * light_x - y * light_y) / math.sqrt(x * x + y * y + 1.0)
    shade[i, j] = max(cosine, 0.0)

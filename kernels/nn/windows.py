"""Kernels of convolutions for devices with a thread for each element: windows as columns of a matrix, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

import aiodev

__all__ = ["add_chunks", "add_windows", "copy_windows", "deliver_rows"]


@aiodev.kernel(ndim=3, reads=["x"])
def copy_windows(
    row: int, image: int, position: int, window_y: int, window_x: int, stride_y: int, stride_x: int, padding_y: int,
    padding_x: int, dilation_y: int, dilation_x: int, width: int, x: Any, out: Any,
) -> None:  # fmt: skip
    """What a tap sees at a position; 0 beyond the borders."""
    channel, tap = row // (window_y * window_x), row % (window_y * window_x)
    i = position // width * stride_y + tap // window_x * dilation_y - padding_y
    j = position % width * stride_x + tap % window_x * dilation_x - padding_x
    if i >= 0 and i < x.shape[2] and j >= 0 and j < x.shape[3]:
        out[row, image, position] = x[image, channel, i, j]
    else:
        out[row, image, position] = 0


@aiodev.kernel(ndim=3, reads=["rows", "bias"])
def deliver_rows(row: int, image: int, position: int, has_bias: bool, rows: Any, bias: Any, out: Any) -> None:
    """One element of a result, whose images are put together of rows of a product."""
    if has_bias:
        out[image, row, position] = rows[row, image, position] + bias[row]
    else:
        out[image, row, position] = rows[row, image, position]


@aiodev.kernel(ndim=3, reads=["columns"])
def add_windows(
    image: int, channel: int, place: int, window_y: int, window_x: int, stride_y: int, stride_x: int, padding_y: int,
    padding_x: int, dilation_y: int, dilation_x: int, width: int, across: int, columns: Any, out: Any,
) -> None:  # fmt: skip
    """One element: the sum of what all windows that have seen it give back, in the order of their taps."""
    i, j = place // width + padding_y, place % width + padding_x
    down = columns.shape[2] // across
    total = columns.dtype.type(0) + np.float32(0)
    for tap_y in range(window_y):
        y = i - tap_y * dilation_y
        if y >= 0 and y % stride_y == 0 and y // stride_y < down:
            for tap_x in range(window_x):
                x = j - tap_x * dilation_x
                if x >= 0 and x % stride_x == 0 and x // stride_x < across:
                    row = (channel * window_y + tap_y) * window_x + tap_x
                    total += columns[row, image, y // stride_y * across + x // stride_x]
    out[image, channel, place] = total


@aiodev.kernel(reads=["parts"])
def add_chunks(i: int, parts: Any, out: Any) -> None:
    """One element: its sum over all chunks, in their order."""
    total = parts.dtype.type(0) + np.float32(0)
    for chunk in range(parts.shape[0]):
        total += parts[chunk, i]
    out[i] = total

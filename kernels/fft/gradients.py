"""Gradients of Fourier transforms, which are Fourier transforms.

A transform is linear, and its matrix symmetric: so what goes back is transformed in the same way, and cut, or filled with
zeros, to what was transformed. Of transforms to real numbers each element but the first, and the middle one, stands for its
conjugate, too, so its gradient is twice that of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.arguments import checked_axis
from aiodev.kernels.elementwise.table import conj, multiply
from aiodev.kernels.fft.transforms import (
    fft,
    fftn,
    hfft,
    ifft,
    ifftn,
    ihfft,
    irfft,
    irfftn,
    lines_of,
    rfft,
    rfftn,
)
from aiodev.kernels.manipulation.joining import pad

#: The factors of what goes the other way.
_BACK = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _fitted(g: Any, shape: tuple[int, ...]) -> Any:
    """A gradient, cut or with zeros behind it along each axis."""
    if g.shape == shape:
        return g
    cut = g[tuple(slice(0, length) for length in shape)]
    widths = [(0, length - own) for length, own in zip(shape, cut.shape, strict=True)]
    return pad(cut, widths) if any(after for _, after in widths) else cut


def _doubled(g: Any, axis: int, length: int) -> Any:
    """Twice the elements that stand for their conjugates, too, in a half transform of ``length``."""
    factors = np.full(length // 2 + 1, 2.0, np.empty(0, g.dtype).real.dtype)
    factors[0] = 1.0
    if length % 2 == 0:
        factors[-1] = 1.0
    own = aiodev.asarray(factors, device=g.device)
    return multiply(g, own.reshape(-1, *(1,) * (g.ndim - 1 - axis)))


def _length(x: Any, n: int | None, axis: int) -> int:
    return x[axis] if n is None else n


def _fft_gradient(g: Any, shapes: Any, axis: int, norm: str) -> Any:
    return _fitted(fft(g, axis=axis, norm=norm), shapes["x"])


def _ifft_gradient(g: Any, shapes: Any, axis: int, norm: str) -> Any:
    return _fitted(ifft(g, axis=axis, norm=norm), shapes["x"])


def _rfft_gradient(g: Any, shapes: Any, n: int | None, axis: int, norm: str) -> Any:
    shape = shapes["x"]
    return _fitted(fft(g, n=_length(shape, n, axis), axis=axis, norm=norm), shape)


def _ihfft_gradient(g: Any, shapes: Any, n: int | None, axis: int, norm: str) -> Any:
    shape = shapes["x"]
    return _fitted(ifft(g, n=_length(shape, n, axis), axis=axis, norm=norm), shape)


def _irfft_gradient(g: Any, shapes: Any, axis: int, norm: str) -> Any:
    place = checked_axis("irfft", axis, g.ndim)
    return _fitted(_doubled(rfft(g, axis=axis, norm=_BACK[norm]), place, g.shape[place]), shapes["x"])


def _hfft_gradient(g: Any, shapes: Any, axis: int, norm: str) -> Any:
    place = checked_axis("hfft", axis, g.ndim)
    return _fitted(_doubled(conj(rfft(g, axis=axis, norm=norm)), place, g.shape[place]), shapes["x"])


def _axes(name: str, g: Any, s: Any, axes: Any) -> tuple[int, ...]:
    """The axes, whatever lengths there are along them."""
    return tuple(axis for axis, _ in lines_of(name, g, s, axes))


def _fftn_gradient(g: Any, shapes: Any, s: Any, axes: Any, norm: str) -> Any:
    return _fitted(fftn(g, axes=_axes("fftn", g, s, axes), norm=norm), shapes["x"])


def _ifftn_gradient(g: Any, shapes: Any, s: Any, axes: Any, norm: str) -> Any:
    return _fitted(ifftn(g, axes=_axes("ifftn", g, s, axes), norm=norm), shapes["x"])


def _rfftn_gradient(g: Any, shapes: Any, s: Sequence[int] | None, axes: Any, norm: str) -> Any:
    shape, places = shapes["x"], _axes("rfftn", g, s, axes)
    lengths = [shape[place] for place in places] if s is None else s
    return _fitted(fftn(g, s=lengths, axes=places, norm=norm), shape)


def _irfftn_gradient(g: Any, shapes: Any, s: Any, axes: Any, norm: str) -> Any:
    places = _axes("irfftn", g, s, axes)
    back = rfftn(g, axes=places, norm=_BACK[norm])
    return _fitted(_doubled(back, places[-1], g.shape[places[-1]]), shapes["x"])


for _function, _rule in (
    (fft, _fft_gradient), (ifft, _ifft_gradient), (rfft, _rfft_gradient), (ihfft, _ihfft_gradient),
    (irfft, _irfft_gradient), (hfft, _hfft_gradient), (fftn, _fftn_gradient), (ifftn, _ifftn_gradient),
    (rfftn, _rfftn_gradient), (irfftn, _irfftn_gradient),
):  # fmt: skip
    _function.operation.gradient(x=_rule)
    _function.operation.holomorphic = True  # those to real numbers have no complex gradient to conjugate

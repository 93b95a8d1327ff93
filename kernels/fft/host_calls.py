"""NumPy's transforms as called functions: for a NumPy whose loops cannot be called by address.

They take the GIL and a thread, but run in stream order all the same, and read and write where elements lie.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.fft.loops import FORWARD, HERMITIAN, INVERSE, REAL_ODD

__all__ = ["transform"]


def transform(call: aiodev.Call, kind: int, x: aiodev.Array, out: aiodev.Array, factor: float) -> None:
    """Submit the transforms of the last dimension, times ``factor``; ``out`` may be ``x``.

    Raises:
        CaptureError: the stream is being captured.
    """
    call.refuse_in_capture(f"this NumPy ({np.__version__}) has no loops of pocketfft that kernels can call")
    call.once()  # what it submits is no launch
    stream = call.stream
    stream.call(_transform, kind, x, out, factor)
    for array in (x, out):
        array.record_stream(stream)


def _transform(kind: int, x: aiodev.Array, out: aiodev.Array, factor: float) -> None:
    source, target = _view(x), _view(out)
    length = target.shape[-1]
    transformed: np.ndarray[Any, Any]
    if kind == FORWARD:
        transformed = np.fft.fft(source, length)
    elif kind == INVERSE:
        transformed = np.fft.ifft(source, length, norm="forward")  # which multiplies by nothing
    elif kind == HERMITIAN:
        transformed = np.fft.irfft(source, length, norm="forward")
    else:
        transformed = np.fft.rfft(source, 2 * length - (1 if kind == REAL_ODD else 2))
    np.multiply(transformed, target.real.dtype.type(factor), out=target)


def _view(array: aiodev.Array) -> np.ndarray[Any, Any]:
    """The elements of an array of a device whose memory the host reaches, as they are now."""
    memory = (ctypes.c_byte * array.itemsize).from_address(array.address)
    first = np.ctypeslib.as_array(memory).view(array.dtype)
    return np.lib.stride_tricks.as_strided(first, array.shape, array.strides)

"""Device arrays of the shape that the launch path sees, over NumPy memory of the CPU."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import numpy as np

from aiodev import Device

_keys: dict[tuple[Device, str, bool], tuple[Device, str, bool]] = {}


class FakeBuffer:
    """What a launch leaves a note in."""

    def __init__(self) -> None:
        self._writer: Any = None
        self._written = 0
        self._reader: Any = None
        self._read = 0

    def _record_write(self, timeline: Any, value: int) -> None:
        self._writer, self._written = timeline, value

    def _record_read(self, timeline: Any, value: int) -> None:
        self._reader, self._read = timeline, value


class FakeArray:
    """A NumPy array posing as a device's."""

    def __init__(self, host: np.ndarray[Any, Any], device: str = "cpu:0") -> None:
        self.host = host
        self.shape = host.shape
        contiguous = host.flags.c_contiguous
        text = f"A{host.ndim}{host.dtype.kind}{host.dtype.itemsize}{'C' if contiguous else 'A'}"
        key = (Device(device), text, host.flags.writeable)
        self._form = SimpleNamespace(key=_keys.setdefault(key, key), shape=host.shape)
        words = (host.ctypes.data, *host.shape, *(() if contiguous else host.strides))
        self._packed = struct.pack(f"<{len(words)}q", *words)
        self._buffer = FakeBuffer()


def arrays(*hosts: np.ndarray[Any, Any]) -> tuple[FakeArray, ...]:
    """Each as a device array."""
    return tuple(FakeArray(host) for host in hosts)

"""Devices by type and index."""

from __future__ import annotations

import re
from typing import Any, SupportsIndex

from aiodev._core import arguments
from aiodev._core.errors import InvalidDeviceError

__all__ = ["Device"]

_NAME = re.compile(r"(?P<type>[a-zA-Z_][a-zA-Z0-9_]*)(?::(?P<index>[0-9]{1,18}))?\Z")


class Device:
    """A device by type and index: a value that starts nothing, compares, hashes and pickles.

    Whether there is such a device is asked where it is used.

    Args:
        type: a type such as ``"cpu"``, a string with an index such as ``"cuda:1"``, or a device.
        index: the index; 0 by default.

    Raises:
        InvalidDeviceError: the name or the index cannot be that of a device.
        TypeError: the type is neither a string nor a device, or the index is no integer.

    Example:
        >>> import aiodev
        >>> aiodev.Device("cuda:1") == aiodev.Device("cuda", 1)
        True
        >>> str(aiodev.Device("cpu"))
        'cpu:0'
    """

    # Devices are keys on the way of every launch. There is one object for each, so that comparing them is comparing
    # addresses, and hashing them costs nothing.
    __slots__ = ("__weakref__", "index", "type")
    __match_args__ = ("type", "index")

    type: str
    index: int

    def __new__(cls, type: str | Device, index: SupportsIndex | None = None) -> Device:
        name, given = (type.type, type.index) if isinstance(type, Device) else _parse(type)
        if index is not None:
            if given is not None:
                raise InvalidDeviceError(f"{type}, index {index}", "the index is given twice")
            given = arguments.integer("Device", "index", index)
            if given < 0:
                raise InvalidDeviceError(f"{type}:{index}", "an index is 0 or more")
        number = given or 0
        known = _devices.get((name, number))
        if known is None:
            known = object.__new__(cls)
            object.__setattr__(known, "type", name)
            object.__setattr__(known, "index", number)
            known = _devices.setdefault((name, number), known)  # atomic: another thread may have been faster
        return known

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Device is a value; make another one instead of setting {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Device is a value; {name} cannot be deleted")

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"aiodev.Device({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Device, (self.type, self.index)


_devices: dict[tuple[str, int], Device] = {}


def _parse(name: str) -> tuple[str, int | None]:
    if not isinstance(name, str):
        raise TypeError(f"a device is a string such as 'cuda:1', a Device or an index, not {arguments.shown(name)}")
    match = _NAME.match(name)
    if match is None:
        raise InvalidDeviceError(name, "a device is a type and an index, such as 'cpu' or 'cuda:1'")
    return match["type"], None if match["index"] is None else int(match["index"])


#: The device whose memory is the host's, and which every machine has.
HOST = Device("cpu")

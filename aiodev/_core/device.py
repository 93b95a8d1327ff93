"""What a device is called."""

from __future__ import annotations

import re
from typing import Any

from aiodev._core.errors import InvalidDeviceError

__all__ = ["Device"]

_NAME = re.compile(r"(?P<type>[a-zA-Z_][a-zA-Z0-9_]*)(?::(?P<index>\d+))?\Z")


class Device:
    """A device by type and index: a value that starts nothing, compares, hashes and pickles.

    Args:
        type: a type such as ``"cpu"``, a string with an index such as ``"cuda:1"``, or a device.
        index: the index; 0 by default.

    Raises:
        InvalidDeviceError: the name or the index is malformed. Whether such a device exists is asked when it is used.

    Example:
        >>> import aiodev
        >>> aiodev.Device("cuda:1") == aiodev.Device("cuda", 1)
        True
        >>> str(aiodev.Device("cpu"))
        'cpu:0'
    """

    __slots__ = ("_hash", "index", "type")

    type: str
    index: int

    def __init__(self, type: str | Device, index: int | None = None) -> None:
        if isinstance(type, Device):
            name, found = type.type, str(type.index)
        else:
            match = _NAME.match(type) if isinstance(type, str) else None
            if match is None:
                raise InvalidDeviceError(type, "a device is a type and an index, such as 'cpu' or 'cuda:1'")
            name, found = match["type"], match["index"]
        if index is not None and found is not None:
            raise InvalidDeviceError(f"{type}, index {index}", "the index is given twice")
        number = int(found) if found is not None else 0 if index is None else index
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise InvalidDeviceError(f"{type}:{index}", "an index is an int of 0 or more")
        object.__setattr__(self, "type", name)
        object.__setattr__(self, "index", number)
        object.__setattr__(self, "_hash", hash((name, number)))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Device is a value; make another one instead of setting {name}")

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Device) and self.type == other.type and self.index == other.index

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined, no-any-return]

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"aiodev.Device({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Device, (self.type, self.index)

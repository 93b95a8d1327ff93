"""Guards that make a device current, and the off-loop start."""

from __future__ import annotations

from types import TracebackType

import anyio.to_thread

from aiodev._core import context
from aiodev._core.device import Device
from aiodev._core.registry import DeviceLike, device_of_object, init_blocking, registry

__all__ = ["device", "device_of", "init"]


class device:  # noqa: N801  (a verb phrase in use: `with aiodev.device("cpu"):`)
    """Make a device current for a block, in the running task only.

    ``async with`` starts the device's backend first, off the loop; ``with`` leaves that to the first submission, which does
    not wait for it either. None changes nothing. The guard may be used again, nested, and by any number of tasks at once.

    Raises:
        InvalidDeviceError: there is no such device.
        BackendUnavailableError: its backend cannot start here.

    Example:
        >>> import aiodev
        >>> with aiodev.device("cpu:0") as d:
        ...     aiodev.current_device() == d
        True
    """

    __slots__ = ("_device", "_entry")

    def __init__(self, device: DeviceLike | None) -> None:
        self._entry, self._device = (None, None) if device is None else registry.resolve(device)

    def __enter__(self) -> Device | None:
        context.push(self, self._device)
        return self._device

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        context.pop(self)

    async def __aenter__(self) -> Device | None:
        if self._entry is not None and not self._entry.started:
            await anyio.to_thread.run_sync(self._entry.ensure_started, abandon_on_cancel=True)
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        context.pop(self)

    def __repr__(self) -> str:
        return f"aiodev.device({str(self._device) if self._device else None!r})"


def device_of(obj: object) -> device:
    """The guard of the device that holds ``obj``; changes nothing for host objects."""
    return device(device_of_object(obj))


async def init(type: str | None = None) -> None:
    """Start a backend (default: the best one), off the loop; nothing happens when it has started.

    Raises:
        BackendUnavailableError: it cannot start here.
    """
    await anyio.to_thread.run_sync(init_blocking, type, abandon_on_cancel=True)

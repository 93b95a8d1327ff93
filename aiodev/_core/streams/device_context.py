"""Device contexts: guards that make a device current, and the start that leaves the loop free."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from aiodev._core import arguments, context
from aiodev._core.backend.device import Device
from aiodev._core.backend.interface import DLPACK_HOST
from aiodev._core.backend.registry import BackendHandle, DeviceLike, registry
from aiodev._core.waiting.reactor import others_first, starting

__all__ = ["device", "device_of", "init"]


class device:
    """Make a device current for a block, in the running task and in those that it creates.

    ``async with`` starts the device's backend first, off the loop; ``with`` leaves that to the first submission, which
    does not wait for it either. None changes nothing. A guard keeps nothing of who entered it: it may be used again,
    nested, and by any number of tasks at once.

    Raises:
        BackendNotFoundError: there is no such type of device.
        BackendUnavailableError: its backend cannot start here.
        InvalidDeviceError: it has no such device.
        RuntimeError: when it is left, and something else was entered last, in this task.

    Example:
        >>> import aiodev
        >>> with aiodev.device("cpu:0") as d:
        ...     aiodev.current_device() == d
        True
    """

    __slots__ = ("_device", "_handle")

    def __init__(self, device: DeviceLike | None) -> None:
        self._handle: BackendHandle | None = None
        self._device: Device | None = None
        if device is not None:
            self._handle, self._device = registry.resolve(device)

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (self._device,)

    def __enter__(self) -> Device | None:
        context.push(self, self._device)
        return self._device

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        context.pop(self)

    async def __aenter__(self) -> Device | None:
        await (others_first if self._handle is None else starting(self._handle))
        context.push(self, self._device)
        return self._device

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        context.pop(self)

    def __repr__(self) -> str:
        return f"aiodev.device({None if self._device is None else str(self._device)!r})"


def device_of(obj: object) -> device:
    """The guard of the device that holds ``obj``; changes nothing for host objects.

    ``obj`` is anything of ours with a ``device``, or an array of another library that speaks DLPack.

    Raises:
        TypeError: its ``__dlpack_device__`` does not say what DLPack's says.

    Example:
        >>> x = aiodev.zeros(4, device="cpu:0")
        >>> with aiodev.device_of(x):
        ...     aiodev.current_device()
        aiodev.Device('cpu:0')
    """
    owner = getattr(obj, "device", None)
    if isinstance(owner, Device):
        return device(owner)
    ask = getattr(obj, "__dlpack_device__", None)
    if ask is not None:
        try:
            code, index = ask()
        except (TypeError, ValueError):
            expected = "an object whose __dlpack_device__() is a pair of integers"
            raise arguments.refusal("device_of", "obj", expected, obj) from None
        name = None if code in DLPACK_HOST else registry.name_of(lambda has: code in has.dlpack_types)
        if name is not None:
            return device(Device(name, index))
    return device(None)


async def init(type: str | None = None) -> None:
    """Start a backend (default: the best one), off the loop; nothing happens when it has started.

    Any number of tasks and threads may ask at once: it starts once. Cancellation stops the waiting, not the start.

    Raises:
        BackendNotFoundError: no such type.
        BackendUnavailableError: it cannot start here.
        BadForkError: it was started before this process was forked.

    Example:
        >>> async def main():
        ...     await aiodev.init("cpu")  # off the loop; other tasks run meanwhile
        ...     return aiodev.is_initialized("cpu")
        >>> asyncio.run(main())
        True
    """
    await starting(registry.handle_of(type))

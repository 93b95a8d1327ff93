"""Device info: what a program may ask about backends and devices."""

from __future__ import annotations

from collections.abc import Callable

from aiodev._core import arguments, context
from aiodev._core.backend.device import Device
from aiodev._core.backend.interface import Backend, Capabilities, DeviceProperties
from aiodev._core.backend.registry import DeviceLike, registry
from aiodev._core.errors import BackendNotFoundError

__all__ = [
    "available_backends",
    "capabilities",
    "current_device",
    "device_count",
    "get_backend",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "init_blocking",
    "is_available",
    "is_initialized",
    "register_backend",
    "set_device",
]


def register_backend(type: str, factory: Callable[[], Backend]) -> None:
    """Make a kind of device known; ``factory()`` is called when it is first needed.

    Raises:
        TypeError: ``type`` is no string, or ``factory`` no function.
        ValueError: the name cannot be a device's, or a backend of that name has already been started.

    Example:
        >>> from aiodev.testing import SimulatedBackend
        >>> aiodev.register_backend("sim", SimulatedBackend)
        >>> aiodev.device_count("sim") >= 1
        True
    """
    registry.register(type, factory)


def get_backend(device: DeviceLike) -> Backend:
    """The backend of a device or type, for what the public interface does not offer. Starts nothing.

    Raises:
        BackendNotFoundError: there is none.
        BackendUnavailableError: it cannot even be loaded.

    Example:
        >>> aiodev.get_backend("cpu").name
        'cpu'
    """
    return registry.handle_of(device).backend


def capabilities(device: DeviceLike | None = None) -> Capabilities:
    """What the backend of a device (default: the current one) can do. Starts nothing, and costs some look-ups in tables.

    Code that has two ways to do something chooses by this, not by the device's type: then it knows devices to come.

    Raises:
        BackendNotFoundError: there is no such type.
        BackendUnavailableError: its backend cannot even be loaded.

    Example:
        >>> aiodev.capabilities("cpu").simt  # its cores loop over ranges of indices
        False
    """
    if type(device) is Device:
        return registry.handle(device.type).backend.capabilities
    return (registry.resolve() if device is None else (registry.handle_of(device),))[0].backend.capabilities


def available_backends() -> tuple[str, ...]:
    """Types of device that can start here, best first. Never raises, starts nothing.

    Example:
        >>> import aiodev
        >>> "cpu" in aiodev.available_backends()
        True
    """
    return registry.available()


def is_available(type: str) -> bool:
    """Whether there is such a type of device and it can start here. Starts nothing.

    Raises:
        TypeError: ``type`` is no string.

    Example:
        >>> aiodev.is_available("cpu"), aiodev.is_available("abacus")
        (True, False)
    """
    try:
        return registry.handle(arguments.instance("is_available", "type", type, str, "a string")).unavailable_reason() is None
    except BackendNotFoundError:
        return False


def device_count(type: str | None = None) -> int:
    """How many devices of a type there are (default: the best type); 0 when unavailable. Starts nothing.

    Does not stand in the way of a later fork.

    Raises:
        BackendNotFoundError: no such type.

    Example:
        >>> aiodev.device_count("cpu") >= 1
        True
    """
    return registry.handle_of(type).device_count()


def current_device() -> Device:
    """The running task's device; the first of the best type where none was chosen.

    Example:
        >>> with aiodev.device("cpu:0"):
        ...     aiodev.current_device()
        aiodev.Device('cpu:0')
    """
    return registry.resolve()[1]


def set_device(device: DeviceLike) -> None:
    """Make a device current for the rest of the task, or to the end of the innermost guard. Starts nothing.

    Raises:
        InvalidDeviceError: there is no such device.
        BackendUnavailableError: its backend cannot start here.

    Example:
        >>> aiodev.set_device("cpu:0")
        >>> aiodev.current_device()
        aiodev.Device('cpu:0')
    """
    context.replace(device=registry.resolve(device)[1])


def get_device_properties(device: DeviceLike | None = None) -> DeviceProperties:
    """What a device (default: the current one) is.

    Example:
        >>> properties = aiodev.get_device_properties("cpu")
        >>> properties.type, properties.multi_processor_count >= 1
        ('cpu', True)
    """
    handle, resolved = registry.resolve(device)
    return handle.backend.device_properties(resolved.index)


def get_device_name(device: DeviceLike | None = None) -> str:
    """A device's name, as its maker gives it.

    Example:
        >>> isinstance(aiodev.get_device_name("cpu"), str)
        True
    """
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike | None = None) -> tuple[int, int]:
    """CUDA's compute capability; for a CPU (width of its vectors in bytes, 0).

    Example:
        >>> width, _ = aiodev.get_device_capability("cpu")  # bytes of a vector register
        >>> width % 8
        0
    """
    return get_device_properties(device).capability


def init_blocking(type: str | None = None, timeout: float | None = None) -> None:
    """Start a backend (default: the best) and wait for it.

    Raises:
        BackendNotFoundError: no such type.
        BackendUnavailableError: it cannot start here.
        BadForkError: it was started before this process was forked.
        TimeoutError: ``timeout`` seconds have passed; the start goes on.

    Example:
        >>> aiodev.init_blocking("cpu")
        >>> aiodev.is_initialized("cpu")
        True
    """
    registry.handle_of(type).ensure_started(timeout)


def is_initialized(type: str | None = None) -> bool:
    """Whether a backend (default: the best) has started.

    Raises:
        BackendNotFoundError: no such type.

    Example:
        >>> aiodev.init_blocking("cpu")
        >>> aiodev.is_initialized("cpu")
        True
    """
    return registry.handle_of(type).started

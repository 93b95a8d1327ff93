"""An asyncio-native accelerator runtime: the event loop never blocks, and the device never waits for the GIL."""

from __future__ import annotations

from aiodev._core import fork as _fork
from aiodev._core.backend import Backend, Capabilities, DeviceProperties, Fault, KernelSpec
from aiodev._core.completion import Completion, as_completed
from aiodev._core.device import Device
from aiodev._core.errors import *  # noqa: F403
from aiodev._core.errors import __all__ as _errors
from aiodev._core.event import Event
from aiodev._core.group import StreamGroup
from aiodev._core.guard import device, device_of, init
from aiodev._core.registry import (
    DeviceLike,
    available_backends,
    current_device,
    device_count,
    get_backend,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init_blocking,
    is_available,
    is_initialized,
    register_backend,
    set_device,
)
from aiodev._core.stream import (
    Stream,
    current_stream,
    default_stream,
    set_stream,
    stream,
    synchronize,
    synchronize_blocking,
)
from aiodev._kernel.kernel import Kernel, kernel

__version__ = "0.1.0"

__all__ = [
    "Backend",
    "Capabilities",
    "Completion",
    "Device",
    "DeviceLike",
    "DeviceProperties",
    "Event",
    "Fault",
    "Kernel",
    "KernelSpec",
    "Stream",
    "StreamGroup",
    "as_completed",
    "available_backends",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "get_backend",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "init",
    "init_blocking",
    "is_available",
    "is_initialized",
    "kernel",
    "register_backend",
    "set_device",
    "set_stream",
    "stream",
    "synchronize",
    "synchronize_blocking",
]
__all__ += _errors

# Where a public name is defined is nobody's business: repr, pickle and the docs say `aiodev.Stream`.
for _name in __all__:
    _value = globals()[_name]
    if getattr(_value, "__module__", "").startswith("aiodev._"):
        _value.__module__ = "aiodev"
del _name, _value
_fork.install()

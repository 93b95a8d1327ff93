"""An asyncio-native accelerator runtime: the event loop never blocks, and the device never waits for the GIL."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from aiodev import _core as _checked, dtypes, memory  # noqa: F401  (the first one refuses interpreters, ahead of NumPy)
from aiodev._array import assignment as _assignment  # noqa: F401  (tells arrays how they are assigned to)
from aiodev._array.array import Array
from aiodev._array.broadcast import broadcast_to
from aiodev._array.creation import (
    arange,
    asarray,
    empty,
    empty_like,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from aiodev._array.dtypes import FOREIGN as _FOREIGN, parse_dtype as _parse_dtype
from aiodev._array.foreign import from_dlpack
from aiodev._core.at_fork import in_child
from aiodev._core.backend import fork as _fork
from aiodev._core.backend.device import Device
from aiodev._core.backend.device_info import (
    available_backends,
    capabilities,
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
from aiodev._core.backend.handle import starting as _starting
from aiodev._core.backend.interface import (
    Backend,
    Capabilities,
    Command,
    DeviceProperties,
    Executor,
    Fault,
    KernelSpec,
    ScheduleStep,
)
from aiodev._core.backend.kernel_arguments import KernelArgument
from aiodev._core.backend.registry import DeviceLike
from aiodev._core.backend.trace_log import TraceLog
from aiodev._core.callsites import describe_site, register_library
from aiodev._core.config import settings as _settings
from aiodev._core.errors import *  # noqa: F403  # all errors are public
from aiodev._core.errors import __all__ as _errors
from aiodev._core.sigint import import_whole as _import_whole
from aiodev._core.streams.completion import Completion, as_completed
from aiodev._core.streams.current import (
    current_stream,
    default_stream,
    set_stream,
    stream,
    synchronize,
    synchronize_blocking,
)
from aiodev._core.streams.device_context import device, device_of, init
from aiodev._core.streams.event import Event
from aiodev._core.streams.group import StreamGroup
from aiodev._core.streams.stream import Stream
from aiodev._core.waiting.sync_debug import get_sync_debug_mode, set_sync_debug_mode
from aiodev._generator.defaults import (
    default_generator,
    fork_rng,
    get_rng_state,
    manual_seed,
    seed_all,
    set_rng_state,
)
from aiodev._generator.generator import Generator
from aiodev._kernel.dispatch import conversion as _conversion, strided as _strided  # noqa: F401  (tell the array layer how to)
from aiodev._kernel.dispatch.call import Call, Number
from aiodev._kernel.kernel import BoundLaunch, Kernel, kernel
from aiodev._kernel.operation import Operation, operation

if _TYPE_CHECKING:
    import numpy as _numpy

    # Those above on the ladder are imported for type checkers by who uses them.
    from aiodev import autograd as autograd, lang as lang, profiler as profiler, testing as testing
    from aiodev._core.streams.capacity import StreamFullError
    from aiodev._graph.capture import capture
    from aiodev._graph.graph import Graph
    from aiodev._graph.graphed import Graphed, make_graphed

    bfloat16: _numpy.dtype[_Any]

__version__ = "0.1.0"

__all__ = [
    "Array",
    "Backend",
    "BoundLaunch",
    "Call",
    "Capabilities",
    "Command",
    "Completion",
    "Device",
    "DeviceLike",
    "DeviceProperties",
    "Event",
    "Executor",
    "Fault",
    "Generator",
    "Graph",
    "Graphed",
    "Kernel",
    "KernelArgument",
    "KernelSpec",
    "Number",
    "Operation",
    "ScheduleStep",
    "Stream",
    "StreamGroup",
    "TraceLog",
    "arange",
    "as_completed",
    "asarray",
    "available_backends",
    "broadcast_to",
    "capabilities",
    "capture",
    "current_device",
    "current_stream",
    "default_generator",
    "default_stream",
    "describe_site",
    "device",
    "device_count",
    "device_of",
    "dtypes",
    "empty",
    "empty_like",
    "fork_rng",
    "from_dlpack",
    "full",
    "full_like",
    "get_backend",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_sync_debug_mode",
    "in_child",
    "init",
    "init_blocking",
    "is_available",
    "is_initialized",
    "kernel",
    "make_graphed",
    "manual_seed",
    "memory",
    "ones",
    "ones_like",
    "operation",
    "register_backend",
    "seed_all",
    "register_library",
    "set_device",
    "set_rng_state",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "synchronize",
    "synchronize_blocking",
    "zeros",
    "zeros_like",
]
__all__ += [*_errors, "StreamFullError"]

#: What not every program uses, with the modules that are imported when it is first asked for.
_ON_FIRST_USE = {
    "Graph": "aiodev._graph.graph",
    "Graphed": "aiodev._graph.graphed",
    "StreamFullError": "aiodev._core.streams.capacity",  # an asyncio.QueueFull, and importing asyncio takes its time
    "capture": "aiodev._graph.capture",
    "make_graphed": "aiodev._graph.graphed",
}
#: Public modules that need nothing else to be installed; not in ``__all__``, as ``import *`` would import all of them.
_MODULES = "array_api", "autograd", "kernels", "lang", "optim", "profiler", "testing"


def _own(value: _Any) -> _Any:
    """Where a public name is defined is nobody's business: repr, pickle and the docs say ``aiodev.Stream``."""
    if getattr(value, "__module__", "").startswith("aiodev._"):
        value.__module__ = "aiodev"
    return value


for _name in __all__:
    _own(globals().get(_name))
del _name
_fork.install()
if _settings.top:
    from aiodev.profiler.top import serve_on_start as _serve_on_start  # of no use to others, and it loads sockets

    _starting.append(_serve_on_start)


def __dir__() -> list[str]:
    """The public names, and the public modules, which are imported when they are first asked for."""
    return [*__all__, "__version__", *_MODULES]


def __getattr__(name: str) -> object:
    if name in _ON_FIRST_USE:
        return globals().setdefault(name, _own(getattr(_import_whole(_ON_FIRST_USE[name]), name)))
    if name in _MODULES:
        return _import_whole(f"{__name__}.{name}")
    if name in _FOREIGN:  # ml_dtypes defines it, which need not be there, and takes its time
        return globals().setdefault(name, _parse_dtype(name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

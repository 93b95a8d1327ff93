"""Registry: which backends and devices there are.

Backends are found through the entry-point group ``aiodev.backends`` and :func:`register_backend`. Nothing is imported
before a backend is asked for, and nothing starts before its first stream, or :func:`aiodev.init`.

After a fork, what the parent had started is forgotten in the child: a backend that can starts afresh, any other raises
:class:`BadForkError`.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from aiodev._core import arguments, context
from aiodev._core.at_fork import around_fork, first_in_child
from aiodev._core.backend.device import HOST, Device
from aiodev._core.backend.handle import BackendHandle, Factory, starting
from aiodev._core.backend.interface import Backend, Capabilities
from aiodev._core.config import Settings
from aiodev._core.errors import BackendNotFoundError, BackendUnavailableError, InvalidDeviceError
from aiodev._core.sigint import import_whole
from aiodev._core.tuning import HOLD_SECONDS

__all__ = [
    "BackendHandle",
    "DeviceLike",
    "Registry",
    "registry",
]

logger = logging.getLogger("aiodev")

DeviceLike = Device | str | int
Resolved = tuple[BackendHandle, Device]

_GROUP = "aiodev.backends"


class EntryPointLike(Protocol):
    """The part of :class:`importlib.metadata.EntryPoint` that the registry uses."""

    @property
    def name(self) -> str: ...

    def load(self) -> Any: ...


class _BuiltIn(NamedTuple):
    name: str
    module: str
    attribute: str

    def load(self) -> Any:
        return getattr(import_whole(self.module), self.attribute)


#: Known without looking through the installed distributions, among which a tree is not, and which takes time.
_BUILT_IN = (
    _BuiltIn("cuda", "aiodev._backends.cuda", "CUDABackend"),
    _BuiltIn("cpu", "aiodev._backends.cpu", "CPUBackend"),
)


class Registry:
    """Backends by name.

    Args:
        built_in: entry points that are known from the start.
        discover: finds the others, called once, when a name is not known or all are asked for.
    """

    def __init__(self, built_in: Iterable[EntryPointLike], discover: Callable[[], Iterable[EntryPointLike]]) -> None:
        self._handles: dict[str, BackendHandle] = {}
        self._discover: Callable[[], Iterable[EntryPointLike]] | None = discover
        # Guards changes; re-entrant, as is that of a handle. Readers go by the dictionaries alone.
        self._lock = threading.RLock()
        # Answers of ``resolve``, kept once their backend has started: until then drivers may change their minds about
        # what is visible. ``_default`` is the answer for None where no device is current; work on it settles it, too.
        self._resolved: dict[DeviceLike, Resolved] = {}
        self._default: Resolved | None = None
        self._forking = threading.Lock()
        self._held: list[BackendHandle] = []
        self._add(built_in)

    def _add(self, points: Iterable[EntryPointLike]) -> None:
        for point in points:
            self._handles.setdefault(point.name, BackendHandle(point.name, _loader(point)))

    def register(self, name: str, factory: Factory) -> None:
        """Add a backend, or replace one that has not been started."""
        arguments.function("register_backend", "factory", factory)
        if Device(arguments.instance("register_backend", "type", name, str, "a string")).type != name:
            raise ValueError(f"register_backend: argument type: {name!r} cannot name a kind of device: it has an index")
        with self._lock:
            known = self._handles.get(name)
            if known is not None and known.busy:
                raise ValueError(f"register_backend: backend {name!r} has already been started and cannot be replaced")
            self._handles[name] = BackendHandle(name, factory)
            self._forget_answers()

    def handle(self, name: str) -> BackendHandle:
        """The handle of the backend of that name.

        Raises:
            BackendNotFoundError: there is none of that name.
        """
        handle = self._handles.get(name)
        if handle is None:
            self._complete()
            handle = self._handles.get(name)
            if handle is None:
                raise BackendNotFoundError(name, self.names())
        return handle

    def handle_of(self, device: DeviceLike | None) -> BackendHandle:
        """The handle of a device's type, whether or not there is such a device; None, or an index, means the default type."""
        if device is None or isinstance(device, int):
            return self.resolve_default()[0]
        if not isinstance(device, str | Device):
            raise TypeError(f"a type of device is a string such as 'cuda', or a device's, not {arguments.shown(device)}")
        return self.handle(Device(device).type)

    def names(self) -> tuple[str, ...]:
        """All names, best first: accelerators, in order of registration, before the CPU."""
        self._complete()
        return tuple(sorted(self._handles, key=lambda name: name == HOST.type))

    def name_of(self, has: Callable[[Capabilities], bool]) -> str | None:
        """The best name whose backend's capabilities are asked for, whether or not it can start here; starts nothing."""
        for name in self.names():
            with suppress(BackendUnavailableError):
                if has(self._handles[name].backend.capabilities):
                    return name
        return None

    def available(self) -> tuple[str, ...]:
        """The names of those that can start here, best first. Never raises, starts nothing."""
        able = [name for name in self.names() if self._handles[name].unavailable_reason() is None]
        return tuple(sorted(able, key=lambda name: self._handles[name].backend.capabilities.stand_in))

    def _complete(self) -> None:
        if self._discover is None:
            return
        with self._lock:
            discover, self._discover = self._discover, None
            if discover is None:
                return
            try:
                self._add(discover())
            except Exception:  # somebody else's broken metadata must not take our own backends away
                logger.exception("the entry points of group %r could not be read", _GROUP)

    def resolve(self, device: DeviceLike | None = None) -> Resolved:
        """The handle and the device that ``device`` means; None is the current device.

        Raises:
            TypeError: nothing that means a device.
            BackendNotFoundError: no such type.
            BackendUnavailableError: it cannot start here.
            BadForkError: it was started before this process was forked.
            InvalidDeviceError: no such index, or malformed.
        """
        if device is None:
            device = context.current().device
            if device is None:
                return self._default or self.resolve_default()
        try:
            resolved = self._resolved.get(device)
        except TypeError:  # it has no hash, so that it is no device either
            resolved = None
        return self._look_up(device) if resolved is None else resolved

    def resolve_default(self) -> Resolved:
        """The first device of the best backend that can start here, which is what plain indices and defaults mean."""
        if self._default is not None:
            return self._default
        for name in self.available():
            handle = self._handles[name]
            default = handle, Device(name)
            if handle.started:
                self._default = default
            return default
        raise BackendUnavailableError(" or ".join(self.names()), "no backend can start here")

    def settle_default(self) -> Resolved:
        """As ``resolve_default``; and from now on that is it, since work is about to be given to it.

        What has become visible meanwhile would else split the work of one program, and to look at every call takes as long as
        to make several arrays.
        """
        default = self._default
        if default is None:
            default = self._default = self.resolve_default()
        return default

    def set_default(self, device: DeviceLike) -> None:
        """Have None mean this device where no device is current, from now on; its backend has been started."""
        self._default = self.resolve(device)

    def _look_up(self, asked: DeviceLike) -> Resolved:
        if isinstance(asked, int):  # not kept: 1.0 and True would be found for 1
            return self.resolve(Device(self.resolve_default()[1].type, asked))
        device = Device(asked)
        handle = self.handle(device.type)
        handle.check_available()
        count = handle.device_count()
        if device.index >= count:
            devices = f"{device.type}:0" if count == 1 else f"{device.type}:0 to {device.type}:{count - 1}"
            raise InvalidDeviceError(str(device), f"this machine has {devices}")
        if handle.started:
            self._resolved[asked] = handle, device
        return handle, device

    def _forget_answers(self) -> None:
        self._resolved.clear()
        self._default = None

    # The ends of a process

    def stop(self) -> None:
        """Have the threads of every backend end: code that they run must not outlive the interpreter."""
        for handle in list(self._handles.values()):
            try:
                handle.stop()
            except Exception:  # the others still have to stop
                logger.exception("backend %r did not stop", handle.name)

    def hold_starts(self) -> None:
        """Before a fork: wait for starts in progress, and let none begin or end until ``resume``."""
        deadline = time.monotonic() + HOLD_SECONDS
        while True:
            self._forking.acquire()
            self._held = list(self._handles.values())
            for handle in self._held:
                handle.hold()
            starters = {starter for handle in self._held if (starter := handle.starter) is not None}
            starters.discard(threading.current_thread())
            if not starters or time.monotonic() > deadline:
                return
            self.resume()  # a start may fork, too
            for starter in starters:
                starter.join(max(0.0, deadline - time.monotonic()))

    def resume(self) -> None:
        """After a fork, in the parent: let starts begin again."""
        for handle in self._held:
            handle.resume()
        self._held = []
        self._forking.release()

    def forget_after_fork(self) -> None:
        """In a forked child: forget what the parent had started."""
        self._lock = threading.RLock()
        self._forking = threading.Lock()
        self._held = []
        self._forget_answers()
        for handle in self._handles.values():
            handle.forget_after_fork()


def _loader(point: EntryPointLike) -> Factory:
    def make() -> Backend:
        factory: Factory = point.load()
        return factory()

    return make


def _installed() -> Iterable[EntryPointLike]:
    from importlib.metadata import entry_points  # which costs a tenth of importing aiodev, and is seldom needed

    return entry_points(group=_GROUP)


@functools.cache
def _warn_of_misspelt_settings() -> None:
    """Once, where the first backend starts: not in a compile worker, which has the environment of the process that says it."""
    for name, setting in Settings.misspelt(os.environ).items():
        logger.warning("%s is in the environment, and no setting; %s is one", name, setting)


#: The process's registry.
registry = Registry(_BUILT_IN, _installed)
atexit.register(registry.stop)
starting.append(lambda _: _warn_of_misspelt_settings())
around_fork(registry.hold_starts, registry.resume)
first_in_child(registry.forget_after_fork)

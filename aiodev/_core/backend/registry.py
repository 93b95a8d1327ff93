"""Which backends and devices there are.

Backends are found through the entry-point group ``aiodev.backends`` and :func:`register_backend`. Nothing is imported
before a backend is asked for, and nothing starts before its first stream, or :func:`aiodev.init`.

After a fork, what the parent had started is forgotten in the child: a backend that can starts afresh, any other raises
:class:`BadForkError`.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from aiodev._core import arguments, context
from aiodev._core.at_fork import around_fork, in_child
from aiodev._core.backend.device import HOST, Device
from aiodev._core.backend.handle import BackendHandle, Factory
from aiodev._core.backend.interface import Backend, Capabilities
from aiodev._core.errors import BackendNotFoundError, BackendUnavailableError, InvalidDeviceError

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
#: How long a fork waits for a start. A driver that hangs must not hang the fork for ever.
_SETTLE_SECONDS = 10.0


class EntryPointLike(Protocol):
    """As much of :class:`importlib.metadata.EntryPoint` as is used."""

    @property
    def name(self) -> str: ...

    def load(self) -> Any: ...


class _BuiltIn(NamedTuple):
    name: str
    module: str
    attribute: str

    def load(self) -> Any:
        return getattr(import_module(self.module), self.attribute)


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
        self._entries: dict[str, BackendHandle] = {}
        self._discover: Callable[[], Iterable[EntryPointLike]] | None = discover
        # Guards changes; re-entrant, as is that of an entry. Readers go by the dictionaries alone.
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
            self._entries.setdefault(point.name, BackendHandle(point.name, _loader(point)))

    def register(self, name: str, factory: Factory) -> None:
        """Add a backend, or replace one that has not been started."""
        arguments.function("register_backend", "factory", factory)
        if Device(arguments.instance("register_backend", "type", name, str, "a string")).type != name:
            raise ValueError(f"register_backend: argument type: {name!r} cannot name a kind of device: it has an index")
        with self._lock:
            known = self._entries.get(name)
            if known is not None and known.busy:
                raise ValueError(f"register_backend: backend {name!r} has already been started and cannot be replaced")
            self._entries[name] = BackendHandle(name, factory)
            self._forget_answers()

    def entry(self, name: str) -> BackendHandle:
        """The backend's entry.

        Raises:
            BackendNotFoundError: there is none of that name.
        """
        found = self._entries.get(name)
        if found is None:
            self._complete()
            found = self._entries.get(name)
            if found is None:
                raise BackendNotFoundError(name, self.names())
        return found

    def entry_of(self, device: DeviceLike | None) -> BackendHandle:
        """The entry of a device's type, whether or not there is such a device; None, and an index, is the default type."""
        if device is None or isinstance(device, int):
            return self.resolve_default()[0]
        if not isinstance(device, str | Device):
            raise TypeError(f"a type of device is a string such as 'cuda', or a device's, not {arguments.shown(device)}")
        return self.entry(Device(device).type)

    def names(self) -> tuple[str, ...]:
        """All names, best first: accelerators, in order of registration, before the CPU."""
        self._complete()
        return tuple(sorted(self._entries, key=lambda name: name == HOST.type))

    def name_of(self, has: Callable[[Capabilities], bool]) -> str | None:
        """The best name whose backend's capabilities are asked for, whether or not it can start here; starts nothing."""
        for name in self.names():
            with suppress(BackendUnavailableError):
                if has(self._entries[name].backend.capabilities):
                    return name
        return None

    def available(self) -> tuple[str, ...]:
        """The names of those that can start here, best first. Never raises, starts nothing."""
        able = [name for name in self.names() if self._entries[name].unavailable_reason() is None]
        return tuple(sorted(able, key=lambda name: self._entries[name].backend.capabilities.stand_in))

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
        """The entry and the device that ``device`` means; None is the current device.

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
            found = self._resolved.get(device)
        except TypeError:  # it has no hash, so that it is no device either
            found = None
        return self._look_up(device) if found is None else found

    def resolve_default(self) -> Resolved:
        """The first device of the best backend that can start here, which is what plain indices and defaults mean."""
        if self._default is not None:
            return self._default
        for name in self.available():
            entry = self._entries[name]
            default = entry, Device(name)
            if entry.started:
                self._default = default
            return default
        raise BackendUnavailableError(" or ".join(self.names()), "no backend can start here")

    def settle_default(self) -> Resolved:
        """As ``resolve_default``; and from now on that is it, since work is about to be given to it.

        What has become visible meanwhile would else split the work of one program, and to look at every call takes as long as
        to make several arrays.
        """
        found = self._default
        if found is None:
            found = self._default = self.resolve_default()
        return found

    def _look_up(self, asked: DeviceLike) -> Resolved:
        if isinstance(asked, int):  # not kept: 1.0 and True would be found for 1
            return self.resolve(Device(self.resolve_default()[1].type, asked))
        device = Device(asked)
        entry = self.entry(device.type)
        entry.check_available()
        count = entry.device_count()
        if device.index >= count:
            devices = f"{device.type}:0" if count == 1 else f"{device.type}:0 to {device.type}:{count - 1}"
            raise InvalidDeviceError(str(device), f"this machine has {devices}")
        if entry.started:
            self._resolved[asked] = entry, device
        return entry, device

    def _forget_answers(self) -> None:
        self._resolved.clear()
        self._default = None

    # The ends of a process

    def stop(self) -> None:
        """Have the threads of every backend end: code that they run must not outlive the interpreter."""
        for entry in list(self._entries.values()):
            try:
                entry.stop()
            except Exception:  # the others still have to stop
                logger.exception("backend %r did not stop", entry.name)

    def settle(self) -> None:
        """Before a fork: let starts come to their end, and hold every entry as it is until ``resume``."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            self._forking.acquire()
            self._held = list(self._entries.values())
            for entry in self._held:
                entry.hold()
            starters = {starter for entry in self._held if (starter := entry.starter) is not None}
            starters.discard(threading.current_thread())
            if not starters or time.monotonic() > deadline:
                return
            self.resume()  # a start may fork, too
            for starter in starters:
                starter.join(max(0.0, deadline - time.monotonic()))

    def resume(self) -> None:
        """After a fork, in the parent."""
        for entry in self._held:
            entry.resume()
        self._held = []
        self._forking.release()

    def forget_after_fork(self) -> None:
        """In a forked child."""
        self._lock = threading.RLock()
        self._forking = threading.Lock()
        self._held = []
        self._forget_answers()
        for entry in self._entries.values():
            entry.forget_after_fork()


def _loader(point: EntryPointLike) -> Factory:
    def make() -> Backend:
        factory: Factory = point.load()
        return factory()

    return make


def _installed() -> Iterable[EntryPointLike]:
    from importlib.metadata import entry_points  # which costs a tenth of importing aiodev, and is seldom needed

    return entry_points(group=_GROUP)


#: The process's registry.
registry = Registry(_BUILT_IN, _installed)
atexit.register(registry.stop)
around_fork(registry.settle, registry.resume)
in_child(registry.forget_after_fork)

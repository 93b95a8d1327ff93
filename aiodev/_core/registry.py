"""Which backends there are, and their lazy start.

Backends are found through the entry-point group ``aiodev.backends`` and :func:`register_backend`. Nothing is imported
before a backend is asked for, and nothing starts before its first stream, or :func:`init`. A start runs once, in a thread of
its own; whoever needs it meanwhile waits for that one.

After a fork, a backend that had started is forgotten in the child: one that can starts afresh, any other raises
:class:`BadForkError`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import os
import threading
import traceback
from collections.abc import Callable
from typing import Any

from aiodev._core import context
from aiodev._core.backend import Backend, DeviceProperties
from aiodev._core.device import Device
from aiodev._core.errors import BackendNotFoundError, BackendUnavailableError, BadForkError, InvalidDeviceError

__all__ = [
    "DeviceLike",
    "available_backends",
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

logger = logging.getLogger("aiodev")

DeviceLike = Device | str | int
Factory = Callable[[], Backend]

#: Found without looking through the installed distributions, which takes tens of milliseconds.
_BUILT_IN = {"cpu": "aiodev._backends.cpu:CPUBackend"}
_GROUP = "aiodev.backends"


class BackendEntry:
    """One registered backend: made on first need, started once."""

    def __init__(self, name: str, factory: Factory) -> None:
        self.name = name
        self.started = False
        self._factory = factory
        self._backend: Backend | None = None
        self._lock = threading.RLock()
        self._starting: threading.Thread | None = None
        self._error: BaseException | None = None
        self._forked = False
        self._callbacks: list[Callable[[BaseException | None], object]] = []
        self._queued: list[tuple[Callable[[], object], traceback.StackSummary]] = []

    @property
    def backend(self) -> Backend:
        """The backend, made if need be; not started by this."""
        backend = self._backend
        if backend is None:
            with self._lock:
                if self._backend is None:
                    self._backend = self._factory()
                backend = self._backend
        return backend

    def unavailable_reason(self) -> str | None:
        """Why it cannot start here, or None; never raises."""
        if self._forked:
            return "it was started before this process was forked; start processes with the 'spawn' method"
        try:
            return self.backend.unavailable_reason()
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def start_soon(self, callback: Callable[[BaseException | None], object]) -> None:
        """Start in a thread, unless started, and call ``callback(error or None)`` then, in order of registration."""
        with self._lock:
            if not self.started and self._error is None:
                self._callbacks.append(callback)
                if self._starting is None:
                    self._starting = threading.Thread(
                        target=self._start, name=f"aiodev-start-{self.name}", daemon=True
                    )
                    self._starting.start()
                return
        callback(self._error)

    def ensure_started(self) -> None:
        """Block until it has started.

        Raises:
            BackendUnavailableError: it cannot start here.
            BadForkError: it was started before this process was forked, and cannot start afresh.
        """
        if self.started:
            return
        done = threading.Event()
        self.start_soon(lambda error: done.set())
        done.wait()
        if self._error is not None:
            raise self._error

    def call_when_started(self, fn: Callable[[], object]) -> None:
        """Run ``fn`` now if the backend has started, else when it starts; a failure then names this call's place."""
        with self._lock:
            if not self.started:
                self._queued.append((fn, traceback.extract_stack()[:-1]))
                return
        fn()

    def _start(self) -> None:
        error: BaseException | None = None
        try:
            reason = self.unavailable_reason()
            if self._forked:
                raise BadForkError(f"backend {self.name!r}", "start processes with the 'spawn' method")
            if reason is not None:
                raise BackendUnavailableError(self.name, reason)
            self.backend.start()
        except (BackendUnavailableError, BadForkError) as failure:
            error = failure
        except BaseException as failure:
            error = BackendUnavailableError(self.name, f"{type(failure).__name__}: {failure}")
            error.__cause__ = failure
        with self._lock:
            self._error = error
            self.started = error is None
            queued, self._queued = self._queued, []
        if error is None:
            self._replay(queued)
        while True:
            with self._lock:
                callbacks, self._callbacks = self._callbacks, []
                if not callbacks:
                    self._starting = None
                    return
            for callback in callbacks:
                try:
                    callback(error)
                except Exception:
                    logger.exception("backend %r: a callback of its start failed", self.name)

    def _replay(self, queued: list[tuple[Callable[[], object], traceback.StackSummary]]) -> None:
        for fn, stack in queued:
            try:
                fn()
            except Exception as failure:
                failure.add_note("It was queued before the backend had started, here:\n" + "".join(stack.format()))
                logger.exception("backend %r: a call queued before its start failed", self.name)

    def forget_after_fork(self) -> None:
        """In a forked child: the parent's threads and driver state are not here."""
        touched = self.started or self._starting is not None
        fresh = touched and self._backend is not None and not self._backend.capabilities.restarts_after_fork
        forked = self._forked or fresh
        self.__init__(self.name, self._factory)  # type: ignore[misc]
        self._forked = forked


class Registry:
    """The backends of this process, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, BackendEntry] = {}
        self._scanned = False
        self._resolved: dict[DeviceLike, tuple[BackendEntry, Device]] = {}
        self._best: str | None = None
        #: Called in a forked child, after the backends were forgotten.
        self.after_fork: list[Callable[[], object]] = []

    def register(self, name: str, factory: Factory) -> None:
        """Add a backend, or replace one that has not started."""
        with self._lock:
            known = self._entries.get(name)
            if known is not None and known.started:
                raise ValueError(f"backend {name!r} has already started and cannot be replaced")
            self._entries[name] = BackendEntry(name, factory)
            self._resolved.clear()
            self._best = None

    def entry(self, name: str) -> BackendEntry:
        """The backend's entry.

        Raises:
            BackendNotFoundError: there is none of that name.
        """
        found = self._entries.get(name)
        if found is None and name in _BUILT_IN:
            with self._lock:
                found = self._entries.setdefault(name, BackendEntry(name, _importer(_BUILT_IN[name])))
        if found is None:
            self._scan()
            found = self._entries.get(name)
        if found is None:
            raise BackendNotFoundError(name, self.names())
        return found

    def names(self) -> tuple[str, ...]:
        """All registered names, accelerators first, the CPU last."""
        self._scan()
        return tuple(sorted(self._entries, key=lambda name: name == "cpu"))

    def _scan(self) -> None:
        if self._scanned:
            return
        found = {point.name: point.value for point in importlib.metadata.entry_points(group=_GROUP)}
        with self._lock:
            for name, target in {**_BUILT_IN, **found}.items():
                self._entries.setdefault(name, BackendEntry(name, _importer(target)))
            self._scanned = True

    def best(self) -> str:
        """The type that plain indices and defaults mean: the first that can start here."""
        if self._best is None:
            self._best = available_backends()[0]
        return self._best

    def resolve(self, device: DeviceLike | None = None) -> tuple[BackendEntry, Device]:
        """The entry and the device that ``device`` means; None is the current device.

        Raises:
            BackendNotFoundError: no such type.
            BackendUnavailableError: it cannot start here.
            InvalidDeviceError: no such index.
        """
        if device is None:
            device = context.current().device
            if device is None:
                device = Device(self.best())
        found = self._resolved.get(device)
        if found is not None:
            return found
        if isinstance(device, int):
            resolved = Device(self.best(), device)
        else:
            resolved = device if isinstance(device, Device) else Device(device)
        entry = self.entry(resolved.type)
        reason = entry.unavailable_reason()
        if reason is not None:
            if entry._forked:
                raise BadForkError(f"backend {entry.name!r}", "start processes with the 'spawn' method")
            raise BackendUnavailableError(entry.name, reason)
        count = entry.backend.device_count()
        if resolved.index >= count:
            raise InvalidDeviceError(str(resolved), f"{resolved.type!r} has {count} device(s) here")
        self._resolved[device] = entry, resolved
        return entry, resolved

    def forget_after_fork(self) -> None:
        """In a forked child."""
        self._lock = threading.Lock()
        self._resolved.clear()
        self._best = None
        for entry in self._entries.values():
            entry.forget_after_fork()
        for hook in self.after_fork:
            hook()


def _importer(target: str) -> Factory:
    def make() -> Backend:
        module, _, name = target.partition(":")
        factory: Factory = getattr(importlib.import_module(module), name)
        return factory()

    return make


#: The process's registry.
registry = Registry()
os.register_at_fork(after_in_child=registry.forget_after_fork)


def register_backend(type: str, factory: Callable[[], Backend]) -> None:
    """Make a kind of device known; ``factory()`` is called when it is first needed.

    Raises:
        ValueError: a backend of that name has already started.
    """
    registry.register(type, factory)


def get_backend(device: DeviceLike) -> Backend:
    """The backend of a device or type, for what the public interface does not offer. Starts nothing.

    Raises:
        BackendNotFoundError: there is none.
    """
    name = registry.best() if isinstance(device, int) else Device(device).type
    return registry.entry(name).backend


def available_backends() -> tuple[str, ...]:
    """Types of device that can start here, best first. Never raises, starts nothing.

    Example:
        >>> import aiodev
        >>> "cpu" in aiodev.available_backends()
        True
    """
    return tuple(name for name in registry.names() if registry.entry(name).unavailable_reason() is None)


def is_available(type: str) -> bool:
    """Whether a type of device can start here. Never raises, starts nothing."""
    try:
        return registry.entry(type).unavailable_reason() is None
    except BackendNotFoundError:
        return False


def device_count(type: str | None = None) -> int:
    """How many devices of a type there are (default: the best type); 0 when unavailable. Starts nothing.

    Raises:
        BackendNotFoundError: no such type.
    """
    entry = registry.entry(registry.best() if type is None else type)
    return entry.backend.device_count() if entry.unavailable_reason() is None else 0


def current_device() -> Device:
    """The running task's device; the best one where none was chosen."""
    return registry.resolve()[1]


def set_device(device: DeviceLike) -> None:
    """Make a device current for the rest of the task, or to the end of the innermost guard."""
    context.replace(device=registry.resolve(device)[1])


def get_device_properties(device: DeviceLike | None = None) -> DeviceProperties:
    """What a device (default: the current one) is."""
    entry, resolved = registry.resolve(device)
    return entry.backend.device_properties(resolved.index)


def get_device_name(device: DeviceLike | None = None) -> str:
    """A device's name, as its maker gives it."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike | None = None) -> tuple[int, int]:
    """CUDA's compute capability; for a CPU (width of its vectors in bytes, 0)."""
    return get_device_properties(device).capability


def init_blocking(type: str | None = None) -> None:
    """Start a backend (default: the best) and wait for it.

    Raises:
        BackendUnavailableError: it cannot start here.
    """
    registry.entry(registry.best() if type is None else type).ensure_started()


def is_initialized(type: str | None = None) -> bool:
    """Whether a backend has started."""
    return registry.entry(registry.best() if type is None else type).started


def device_of_object(obj: Any) -> Device | None:
    """The device that holds ``obj``, or None for a host object."""
    found = getattr(obj, "device", None)
    return found if isinstance(found, Device) else None

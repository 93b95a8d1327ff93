"""Backends of no device at all, which start when the test lets them; and what every test of the core leaves behind: nothing."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from turns import Clock

import aiodev
from aiodev._core.backend.handle import BackendHandle
from aiodev._core.backend.interface import COMPLETED, Backend, Capabilities, DeviceProperties
from aiodev._core.backend.registry import Registry, registry
from aiodev._core.timeline.timeline import living
from aiodev._core.waiting import asyncio_reactor, fairness, line, reactor, spinning
from aiodev.testing import SimulatedBackend


class FakeBackend(Backend):
    """A backend that can be asked what it is and be started, and nothing else.

    Attributes:
        may_start: cleared by a test to hold ``start``.
        starting: set once ``start`` was called.
        start_threads: the thread of each start.
        error: what ``start`` raises.
    """

    def __init__(self, name: str = "fake", devices: int = 2, *, reason: str | None = None) -> None:
        self.name = name
        self.capabilities = Capabilities(host_accessible=False)
        self.reason = reason
        self.devices = devices
        self.error: BaseException | None = None
        self.starting = threading.Event()
        self.may_start = threading.Event()
        self.may_start.set()
        self.start_threads: list[threading.Thread] = []
        self.stopped = 0

    def unavailable_reason(self) -> str | None:
        return self.reason

    def device_count(self) -> int:
        return 0 if self.reason else self.devices

    def device_properties(self, index: int) -> DeviceProperties:
        return DeviceProperties(f"Fake {index}", self.name, index, 1 << 30, 4, (9, index))

    def start(self) -> None:
        self.start_threads.append(threading.current_thread())
        self.starting.set()
        assert self.may_start.wait(30), "the test did not let the backend start"
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self.stopped += 1


FakeBackend.__abstractmethods__ = frozenset()  # submissions are not what these tests are about

AddBackend = Callable[..., FakeBackend]


@pytest.fixture
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """The process's registry, without any backend for as long as the test lasts."""
    fresh = Registry((), lambda: ())
    for name in ("_handles", "_discover", "_resolved", "_default"):
        monkeypatch.setattr(registry, name, getattr(fresh, name))
    yield registry


@pytest.fixture
def add_backend(empty_registry: Registry) -> AddBackend:
    """Register a fake backend in an otherwise empty registry; takes the arguments of FakeBackend."""

    def add(name: str = "fake", *args: Any, **kwargs: Any) -> FakeBackend:
        backend = FakeBackend(name, *args, **kwargs)
        empty_registry.register(name, lambda: backend)
        return backend

    return add


_numbers = itertools.count()


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedBackend]:
    """A simulated device, not started, next to the others for as long as the test lasts.

    Its name is its own: what the process keeps for a device, such as cached memory and idle streams, is no use to another.
    """
    backend = SimulatedBackend()
    backend.name = f"sim_{next(_numbers)}"
    handles = {**registry._handles, backend.name: BackendHandle(backend.name, lambda: backend)}
    for name, value in (("_handles", handles), ("_resolved", {}), ("_default", None)):
        monkeypatch.setattr(registry, name, value)
    yield backend
    backend.stop()
    for timeline in living.all():  # else what uses memory at any time that somebody looks would wait for them
        if timeline.device.type == backend.name and timeline.counters[COMPLETED] < timeline.submitted:
            timeline.lose(aiodev.BackendUnavailableError(backend.name, "the test is over"))


class Block:
    """Device memory."""

    def __init__(self, nbytes: int) -> None:
        self.backend, self.nbytes = aiodev.get_backend("cpu"), nbytes
        self.address = self.backend.allocate(0, nbytes)

    def read(self) -> bytes:
        return ctypes.string_at(self.address, self.nbytes)


@pytest.fixture
def block() -> Iterator[Callable[[int], Block]]:
    """Allocate device memory that is given back after the test."""
    aiodev.init_blocking("cpu")
    blocks: list[Block] = []

    def allocate(nbytes: int) -> Block:
        blocks.append(Block(nbytes))
        return blocks[-1]

    yield allocate
    aiodev.synchronize_blocking("cpu", timeout=30)
    for made in blocks:
        made.backend.deallocate(0, made.address, made.nbytes)


@pytest.fixture(autouse=True)
def no_parked_waits() -> Iterator[None]:
    """After each test, nothing waits any more in a loop of the test's thread."""
    yield
    assert [len(known.waits) for known in reactor._thread.all if len(known.waits)] == []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The clock of this thread's budget."""
    made, real = Clock(), fairness.clock
    monkeypatch.setattr(fairness, "clock", made)
    fairness.budget.renew(made())
    yield made
    fairness.budget.renew(real())


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that says how long a wait or a part of the work took: a test lets that time pass."""
    made = Clock()
    made.work(10**9)
    for module in (asyncio_reactor, line, reactor, spinning):
        monkeypatch.setattr(module, "time", made)
    return made

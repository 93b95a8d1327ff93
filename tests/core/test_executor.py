"""What a timeline submits to: a backend's executor, or one that keeps operations until that is there, or refuses them."""

from __future__ import annotations

import inspect
import threading

import pytest

import aiodev
from aiodev import Executor, Stream
from aiodev._core.backend.registry import registry
from aiodev._core.timeline.deferred import Deferred, Lost
from aiodev.testing import SimulatedBackend

METHODS = sorted(name for name, value in vars(Executor).items() if inspect.isfunction(value) and not name.startswith("_"))


@pytest.mark.parametrize("method", METHODS)
def test_a_lost_executor_refuses_everything(method: str) -> None:
    """Whatever is asked of a lost timeline's executor raises the loss."""
    arguments = [0] * (len(inspect.signature(getattr(Executor, method)).parameters) - 1)
    with pytest.raises(ConnectionError, match="gone"):
        getattr(Lost(ConnectionError("gone")), method)(*arguments)


def test_what_a_timeline_submits_to_is_an_executor(simulated: SimulatedBackend) -> None:
    """Before its backend has started, afterwards, and when it is lost."""
    stream = Stream(f"{simulated.name}:0")
    timeline = stream.timeline
    kinds = [type(timeline.operations)]
    stream.record_event().synchronize_blocking(30)
    aiodev.init_blocking(simulated.name)
    kinds.append(type(timeline.hand_on()))
    timeline.lose(ConnectionError("gone"))
    kinds.append(type(timeline.operations))
    assert kinds == [Deferred, type(simulated.executor), Lost]
    assert all(issubclass(kind, Executor) for kind in kinds)


def test_an_executor_is_there_from_the_start_on() -> None:
    """Before, the error says what to do."""
    backend = SimulatedBackend()
    with pytest.raises(RuntimeError, match=r"backend 'sim'.*call start\(\) first"):
        backend.executor  # noqa: B018  # it is the access that raises
    backend.start()
    assert isinstance(backend.executor, Executor)
    backend.stop()


def test_a_native_executors_hot_methods_are_the_compiled_functions() -> None:
    """Nothing stands between a submission and native code."""
    aiodev.init_blocking("cpu")
    if aiodev.get_backend("cpu").executor_kind != "native":  # type: ignore[attr-defined]
        pytest.skip("the portable executor is in use")
    executor = aiodev.get_backend("cpu").executor
    for name in ("launch", "wait", "stamp", "spin", "help", "arm", "forgive", "create_gate", "gate", "open_gate", "withdraw"):
        assert inspect.isbuiltin(getattr(executor, name)), name


def test_who_waited_for_the_start_finds_the_executor(simulated: SimulatedBackend) -> None:
    """A stream's operations are handed on by the starting thread, or before that by who has to ask the executor itself."""
    entry, leave = registry.handle(simulated.name), threading.Event()
    entry.start_soon(lambda error: leave.wait(30))  # the starting thread comes no further
    stream = Stream(f"{simulated.name}:0")
    submitted = stream._fill(0, 0, bytes(1))
    try:
        entry.ensure_started(30)
        timeline = stream.timeline
        assert timeline.deferred
        executor = timeline.hand_on()
        assert executor is simulated.executor and not timeline.deferred
        waiting = executor.wait_foreign(timeline.queue, 5)
        assert waiting == submitted + 1 and executor.spin(timeline.queue, waiting, 10**10)
    finally:
        leave.set()

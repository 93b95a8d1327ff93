"""What is current belongs to the running task, and comes back when a guard is left."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

import aiodev
from aiodev import BackendUnavailableError, Device, InvalidDeviceError
from aiodev._core import context

pytestmark = pytest.mark.anyio

AddBackend = Callable[..., Any]

FIRST, SECOND, THIRD = (Device("fake", index) for index in range(3))


@pytest.fixture(autouse=True)
def backend(add_backend: AddBackend) -> Any:
    """A backend with three devices, of which the first is the default."""
    return add_backend("fake", 3)


@pytest.fixture(autouse=True)
def clean_context() -> Any:
    """Undo what a test leaves current in pytest's own context."""
    frame = context.current()
    yield
    context._frames.set(frame)


class FakeStream:
    """What a frame knows of a stream."""

    def __init__(self, device: Device) -> None:
        self.device = device


# Nesting


def test_a_guard_restores() -> None:
    """Nested guards, of the same device or another, restore what was before."""
    outer, inner = aiodev.device(SECOND), aiodev.device(THIRD)
    assert aiodev.current_device() == FIRST
    with outer as entered:
        assert aiodev.current_device() == entered == SECOND
        with inner:
            assert aiodev.current_device() == THIRD
            with outer, inner, outer:
                assert aiodev.current_device() == SECOND
            assert aiodev.current_device() == THIRD
        assert aiodev.current_device() == SECOND
    assert aiodev.current_device() == FIRST


async def test_a_guard_restores_after_an_exception() -> None:
    """An exception in the block passes through and leaves nothing behind."""
    with pytest.raises(KeyError), aiodev.device(SECOND):
        raise KeyError
    assert aiodev.current_device() == FIRST
    with pytest.raises(KeyError):
        async with aiodev.device(SECOND), aiodev.device(THIRD):
            raise KeyError
    assert aiodev.current_device() == FIRST


async def test_a_guard_restores_after_cancellation() -> None:
    """So does the cancellation of what is awaited inside."""
    with anyio.move_on_after(0) as scope:
        async with aiodev.device(SECOND):
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert aiodev.current_device() == FIRST


def test_no_device_changes_nothing() -> None:
    """``device(None)`` is a guard too, and keeps what is current."""
    with aiodev.device(SECOND), aiodev.device(None) as entered:
        assert entered is None
        assert aiodev.current_device() == SECOND


def test_a_device_set_inside_a_guard_ends_with_it() -> None:
    """``set_device`` lasts to the end of the innermost guard; outside of any, for the rest of the task."""
    aiodev.set_device(SECOND)
    with aiodev.device(FIRST):
        aiodev.set_device("fake:2")
        assert aiodev.current_device() == THIRD
        with aiodev.device(None):
            aiodev.set_device(0)
        assert aiodev.current_device() == THIRD
    assert aiodev.current_device() == SECOND


def test_guards_are_left_in_reverse_order() -> None:
    """Leaving another guard than the innermost raises, and changes nothing."""
    outer, inner = aiodev.device(FIRST), aiodev.device(SECOND)
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(RuntimeError, match=r"aiodev.device\('fake:0'\) is left, but .* is aiodev.device\('fake:1'\)"):
        outer.__exit__(None, None, None)
    assert aiodev.current_device() == SECOND
    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="is none"):
        outer.__exit__(None, None, None)


def test_a_bad_device_is_told_when_the_guard_is_made() -> None:
    """Not when it is entered."""
    with pytest.raises(InvalidDeviceError):
        aiodev.device("fake:3")


# Tasks


async def test_tasks_do_not_see_each_other() -> None:
    """Two tasks of one thread, each inside a guard, keep their own device across every switch between them."""
    guard = {device: aiodev.device(device) for device in (FIRST, SECOND)}

    async def work(device: Device) -> None:
        for _ in range(50):
            async with guard[device]:
                await checkpoint()
                assert aiodev.current_device() == device
            await checkpoint()
            assert aiodev.current_device() == THIRD

    aiodev.set_device(THIRD)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work, FIRST)
        tasks.start_soon(work, SECOND)
    assert aiodev.current_device() == THIRD


async def test_many_tasks_hold_one_guard() -> None:
    """A guard may be entered by any number of tasks at once, nested in each, and left in any order between them."""
    shared, other = aiodev.device(SECOND), aiodev.device(THIRD)
    all_inside, inside = anyio.Event(), 0

    async def work(rounds: int) -> None:
        nonlocal inside
        async with shared:
            async with other, shared:
                inside += 1
                if inside == 20:
                    all_inside.set()
                await all_inside.wait()
                for _ in range(rounds):
                    await checkpoint()
                assert aiodev.current_device() == SECOND
            assert aiodev.current_device() == SECOND
        assert aiodev.current_device() == FIRST

    async with anyio.create_task_group() as tasks:
        for rounds in range(20):
            tasks.start_soon(work, rounds * 7 % 20)


async def test_tasks_inherit_at_their_creation() -> None:
    """A task begins with what was current when it was created, and keeps it whatever its creator does next."""
    seen: list[Device] = []

    async def look() -> None:
        await checkpoint()
        seen.append(aiodev.current_device())
        aiodev.set_device(FIRST)

    async with anyio.create_task_group() as tasks:
        with aiodev.device(SECOND):
            tasks.start_soon(look)
            aiodev.set_device(THIRD)
            tasks.start_soon(look)
        await checkpoint()
        assert aiodev.current_device() == FIRST
    assert sorted(seen, key=str) == [SECOND, THIRD]


async def test_threads_of_the_loop_inherit() -> None:
    """``to_thread`` carries the context; what the thread sets stays there."""

    def work() -> Device:
        found = aiodev.current_device()
        aiodev.set_device(THIRD)
        return found

    async with aiodev.device(SECOND):
        assert await anyio.to_thread.run_sync(work) == SECOND
        assert aiodev.current_device() == SECOND


def test_other_threads_begin_afresh() -> None:
    """A plain thread has a context of its own, and with it the default device."""
    seen: list[Device] = []
    with aiodev.device(SECOND):
        thread = threading.Thread(target=lambda: seen.append(aiodev.current_device()))
        thread.start()
        thread.join()
    assert seen == [FIRST]


def test_gather_and_create_task_inherit() -> None:
    """asyncio's own ways of making tasks do, too."""

    async def look() -> Device:
        await asyncio.sleep(0)
        return aiodev.current_device()

    async def main() -> None:
        async with aiodev.device(SECOND):
            task = asyncio.create_task(look())
            async with asyncio.TaskGroup() as group:
                member = group.create_task(look())
            with aiodev.device(THIRD):
                gathered = asyncio.gather(look(), look())
        assert aiodev.current_device() == FIRST
        assert (await task, member.result(), await gathered) == (SECOND, SECOND, [THIRD, THIRD])

    asyncio.run(main())


# Starting


async def test_entering_starts_off_the_loop(backend: Any) -> None:
    """``async with`` starts the backend while other tasks run; ``with`` does not start it."""
    backend.may_start.clear()
    with aiodev.device(SECOND):
        assert not backend.start_threads

    async def enter() -> None:
        async with aiodev.device(SECOND):
            assert aiodev.is_initialized("fake") and aiodev.current_device() == SECOND

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(enter)
        tasks.start_soon(enter)
        await anyio.to_thread.run_sync(backend.starting.wait, 30)
        backend.may_start.set()
    assert len(backend.start_threads) == 1


async def test_a_guard_whose_backend_does_not_start_is_not_entered(backend: Any) -> None:
    """The failure is raised, and what was current stays so."""
    backend.error = OSError("no")
    guard = aiodev.device(SECOND)
    with pytest.raises(BackendUnavailableError):
        async with guard:
            pytest.fail("entered")
    assert aiodev.current_device() == FIRST


async def test_a_guard_that_is_cancelled_while_it_starts_is_not_entered(backend: Any) -> None:
    """Nothing is current that would never be left."""
    backend.may_start.clear()
    with anyio.move_on_after(0) as scope:
        async with aiodev.device(SECOND):
            pytest.fail("entered")
    backend.may_start.set()
    assert scope.cancelled_caught
    assert aiodev.current_device() == FIRST


# The device of an object


class Foreign:
    """An array of another library."""

    device = "whatever it calls it"

    def __init__(self, code: int, index: int) -> None:
        self._answer = code, index

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._answer


def test_device_of_is_where_the_object_is() -> None:
    """Whatever of ours has a device is guarded by it."""
    with aiodev.device_of(FakeStream(THIRD)) as entered:
        assert entered == aiodev.current_device() == THIRD


@pytest.mark.parametrize("host", [1.0, [1], memoryview(b"1"), Foreign(1, 0)])
def test_device_of_host_objects_changes_nothing(host: object) -> None:
    """NumPy's arrays and their like are nowhere in particular."""
    with aiodev.device(SECOND), aiodev.device_of(host):
        assert aiodev.current_device() == SECOND


def test_device_of_foreign_arrays(add_backend: AddBackend) -> None:
    """Arrays of other libraries say where they are by DLPack."""
    backend = add_backend("cuda", 2)
    backend.capabilities = backend.capabilities._replace(dlpack_types=(2, 13))
    with aiodev.device_of(Foreign(2, 1)):
        assert aiodev.current_device() == Device("cuda", 1)


# Streams in frames


def test_each_device_has_its_stream() -> None:
    """A frame has the stream of the current device at hand, and remembers those of the others."""
    first, second = FakeStream(FIRST), FakeStream(SECOND)
    context.push(first, FIRST, first)
    context.push(second, SECOND, second)
    assert context.current().stream is second
    with aiodev.device(FIRST):
        assert context.current().stream is first
    with aiodev.device(THIRD):
        assert context.current().stream is None
    context.pop(second)
    assert context.current().stream is first and SECOND not in context.current().streams
    context.pop(first)


def test_a_frame_in_use_never_changes() -> None:
    """A copy of the context, which is what a task has, is not touched by what its creator does later."""
    stream = FakeStream(SECOND)
    with aiodev.device(SECOND):
        copy = contextvars.copy_context()
        context.replace(stream=stream)
        assert context.current().stream is stream
        assert copy.run(context.current).stream is None

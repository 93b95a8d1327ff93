"""Waits that block a thread whose event loop runs are told of, or refused; nothing else is."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parking import when_parked

import aiodev
import aiodev.kernels as kernels
from aiodev import Stream, SyncError, SyncWarning
from aiodev.testing import Latch, SimulatedBackend

WAIT = 30


@pytest.fixture(autouse=True)
def mode_of_before() -> Iterator[None]:
    """What a test sets outside of tasks is not there for the next one."""
    before = aiodev.get_sync_debug_mode()
    yield
    aiodev.set_sync_debug_mode(before)


class Work:
    """A stream with something in flight that an array, an event and a completion stand for."""

    def __init__(self) -> None:
        aiodev.init_blocking("cpu")
        self.stream = Stream("cpu")
        with self.stream:
            self.array = aiodev.zeros(3, device="cpu")
            self.latch = Latch(self.stream)
            self.done = self.array.copy_from(aiodev.ones(3, device="cpu"))
            self.event = self.stream.record_event()


class Asked(Work):
    """With what is computed of the array, too."""

    def __init__(self) -> None:
        super().__init__()
        with self.stream:
            self.rows = aiodev.zeros(3, device="cpu")[:, None] + 0
            self.integer, self.mask = kernels.sum(self.array).astype("int64"), self.array > 0

    def look(self, what: Callable[[], object]) -> object:
        """Ask for something on the stream."""
        with self.stream:
            return what()


#: What blocks, with the name that it is told by and what to await.
BLOCKING: dict[str, tuple[Callable[[Work], object], str, str]] = {
    "completion": (lambda w: w.done.synchronize_blocking(), "Completion.synchronize_blocking", "await completion"),
    "stream": (lambda w: w.stream.synchronize_blocking(), "Stream.synchronize_blocking", "await stream.synchronize()"),
    "event": (lambda w: w.event.synchronize_blocking(), "Event.synchronize_blocking", "await event.synchronize()"),
    "device": (lambda w: aiodev.synchronize_blocking("cpu"), "aiodev.synchronize_blocking", "await aiodev.synchronize()"),
    "timeout": (lambda w: w.done.synchronize_blocking(WAIT), "Completion.synchronize_blocking", "await completion"),
    "numpy": (lambda w: w.array.numpy_blocking(), "Array.numpy_blocking", "await array.numpy()"),
    "asarray": (lambda w: np.asarray(w.array), "Array.__array_interface__", "await array.numpy()"),
    "array": (lambda w: w.array.__array__(), "Array.__array__", "await array.numpy()"),
    "dlpack": (lambda w: np.from_dlpack(w.array), "Array.__dlpack__", "await stream.synchronize()"),
}


@pytest.mark.anyio
@pytest.mark.parametrize("case", BLOCKING)
async def test_what_would_block_raises(case: str) -> None:
    """In mode "error", naming the call, its place and what to await; it does not wait, and the work is as it was."""
    block, call, instead = BLOCKING[case]
    work = Work()
    aiodev.set_sync_debug_mode("error")
    with pytest.raises(SyncError) as caught:
        block(work)
    error = caught.value
    assert (error.call, error.instead) == (call, instead)
    assert error.place is not None and error.place.startswith(f"{__file__}:")
    assert str(error) == f"{call} at {error.place} blocks a thread whose event loop runs; `{instead}` instead, or before"
    assert not work.done.query()
    work.latch.release()
    assert (await work.array.numpy() == 1).all()
    await work.stream.synchronize()
    block(work)  # it need not wait any more


#: What asks for values on the way to something else.
ASKING: dict[str, tuple[Callable[[Asked], object], str, str]] = {
    "size": (lambda w: aiodev.zeros(w.integer, device="cpu"), "aiodev.zeros", "await array.item()"),
    "shape": (lambda w: w.array.reshape(w.integer, -1), "Array.reshape", "await array.item()"),
    "values": (lambda w: aiodev.asarray([w.integer, 1], device="cpu"), "aiodev.asarray", "await array.numpy()"),
    "slice": (lambda w: w.array[: w.integer], "Array.__getitem__", "await array.item()"),
    "mask": (lambda w: w.look(lambda: w.array[w.mask]), "Array.__getitem__", "await aiodev.kernels.select(mask, array)"),
    "masks": (lambda w: w.look(lambda: w.rows.__setitem__((w.mask, [0]), 1)), "Array.__setitem__", "await mask.numpy()"),
    "in": (lambda w: w.look(lambda: 1 in w.array), "Array.__contains__", "await aiodev.kernels.any(array == value).item()"),
}


@pytest.mark.parametrize("case", ASKING)
async def test_what_asks_for_values_is_told_what_to_await(case: str) -> None:
    """The value that it waits for, or what waits in its task: not the stream, which need not be the program's."""
    block, call, instead = ASKING[case]
    work = Asked()
    aiodev.set_sync_debug_mode("error")
    with pytest.raises(SyncError) as caught:
        block(work)
    assert (caught.value.call, caught.value.instead) == (call, instead)
    work.latch.release()
    await work.stream.synchronize()


@pytest.mark.anyio
@pytest.mark.parametrize("case", BLOCKING)
async def test_what_blocks_warns(case: str) -> None:
    """In mode "warn", once for each call, at the line of the program that made it; then it waits."""
    block, call, instead = BLOCKING[case]
    work = Work()
    aiodev.set_sync_debug_mode("warn")
    when_parked(work.stream, 1, work.latch.release)
    with pytest.warns(SyncWarning) as caught:
        block(work)
    (warning,) = caught
    assert warning.filename == __file__
    assert isinstance(warning.message, SyncWarning)
    assert (warning.message.call, warning.message.instead) == (call, instead)
    assert work.done.query()


@pytest.mark.parametrize("case", BLOCKING)
async def test_by_default_nothing_is_told(case: str) -> None:
    """The call waits."""
    work = Work()
    assert aiodev.get_sync_debug_mode() == "default"
    when_parked(work.stream, 1, work.latch.release)
    BLOCKING[case][0](work)
    assert work.done.query()


@pytest.mark.parametrize("case", BLOCKING)
def test_a_thread_without_a_loop_may_block(case: str) -> None:
    """In every mode."""
    work = Work()
    aiodev.set_sync_debug_mode("error")
    when_parked(work.stream, 1, work.latch.release)
    BLOCKING[case][0](work)
    assert work.done.query()


async def test_the_mode_belongs_to_the_task() -> None:
    """A task begins with that of its maker; what it sets, others do not see; a called function has its submitter's."""
    aiodev.set_sync_debug_mode("warn")

    async def other() -> str:
        before = aiodev.get_sync_debug_mode()
        aiodev.set_sync_debug_mode("error")
        await asyncio.sleep(0)
        return f"{before} {aiodev.get_sync_debug_mode()}"

    assert await asyncio.create_task(other()) == "warn error"
    assert aiodev.get_sync_debug_mode() == "warn"
    assert await Stream("cpu").call(aiodev.get_sync_debug_mode) == "warn"


async def test_a_called_function_may_block() -> None:
    """No loop runs in its thread."""
    work = Work()
    aiodev.set_sync_debug_mode("error")
    call = Stream("cpu").call(work.done.synchronize_blocking)
    work.latch.release()
    await call


async def test_a_look_without_waiting_is_no_wait() -> None:
    """A timeout of nothing."""
    work = Work()
    aiodev.set_sync_debug_mode("error")
    with pytest.raises(TimeoutError):
        work.done.synchronize_blocking(0)
    work.latch.release()


@pytest.mark.anyio
async def test_starting_a_backend_is_told(simulated: SimulatedBackend) -> None:
    """``await aiodev.init`` is what to do."""
    aiodev.set_sync_debug_mode("error")
    held, start = threading.Event(), simulated.start
    simulated.start = lambda: held.wait(WAIT) and start()  # type: ignore[method-assign]
    with pytest.raises(SyncError) as caught:
        aiodev.init_blocking(simulated.name)
    assert (caught.value.call, caught.value.instead) == ("aiodev.init_blocking", "await aiodev.init()")
    held.set()
    await aiodev.init(simulated.name)
    aiodev.init_blocking(simulated.name)


def test_the_first_use_of_a_device_is_told() -> None:
    """What is submitted before its backend has started does not wait for that; a blocking read of it does."""
    program = """
        import asyncio, aiodev
        async def main():
            aiodev.set_sync_debug_mode("error")
            array = aiodev.zeros(1 << 17, device="cpu")
            try:
                array.numpy_blocking()
            except aiodev.SyncError as error:
                print(error.call, error.place, error.instead)
            await array.numpy()
            array.numpy_blocking()
        asyncio.run(main())
    """
    finished = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert finished.stdout.strip() == "Array.numpy_blocking <string>:7 await array.numpy()", finished.stderr


@pytest.mark.parametrize("mode", ["", "ERROR", 1, None])
def test_other_modes_are_refused(mode: Any) -> None:
    with pytest.raises(ValueError, match="expected one of 'default', 'warn', 'error'"):
        aiodev.set_sync_debug_mode(mode)


@pytest.mark.parametrize(("debug", "mode"), [("1", "warn"), ("0", "default")])
def test_the_mode_of_a_program_that_is_debugged(debug: str, mode: str) -> None:
    """AIODEV_DEBUG=1 warns."""
    program = "import aiodev; print(aiodev.get_sync_debug_mode())"
    environment = {**os.environ, "AIODEV_DEBUG": debug}
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert finished.stdout.strip() == mode


async def test_the_warning_names_the_program_where_a_library_calls(tmp_path: Path) -> None:
    """What is registered as a library is passed over, as it is for the place of a submission."""
    source = "def read(array):\n    return array.numpy_blocking()\n"
    library: dict[str, Any] = {"__name__": "my_library"}
    exec(compile(source, str(tmp_path / "my_library.py"), "exec"), library)
    aiodev.register_library("my_library")
    work = Work()
    aiodev.set_sync_debug_mode("warn")
    when_parked(work.stream, 1, work.latch.release)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        library["read"](work.array)
    assert [warning.filename for warning in caught] == [__file__]
    assert str(caught[0].message).startswith("my_library.read at ")

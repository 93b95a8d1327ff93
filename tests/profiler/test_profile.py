"""aiodev.profiler.profile: each operation with its times, its stream and its task, on every executor."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections import Counter, defaultdict

import anyio
import numpy as np
import pytest
from forking import run

import aiodev
from aiodev import profiler
from aiodev._core.streams import trace
from aiodev.testing import Latch, SimulatedBackend


@aiodev.kernel
def double(i, x, out):
    out[i] = 2 * x[i]


@aiodev.kernel
def checked(i, x):
    if x[i] < 0:
        raise ValueError("negative")


@pytest.fixture(autouse=True)
def nothing_is_recorded_afterwards():
    """After each test nobody records, and no stream notes what it submits."""
    yield
    assert trace.active is None


def work(prof: profiler.Profile) -> list[profiler.Operation]:
    """What the device ran, or was to run."""
    return [operation for operation in prof.operations if operation.runs]


async def test_kernels_and_copies_in_their_place(device) -> None:
    """Kernels by name, copies and fills, each with stream, device, shape, bytes, task and line, within the block's time."""
    stream, before = aiodev.Stream(device), time.perf_counter_ns()
    with stream:
        x, out = aiodev.empty(64, dtype=np.float32), aiodev.empty(64, dtype=np.float32)
    await double.compile(x, out)
    asyncio.current_task().set_name("the task")
    async with profiler.profile() as prof:
        stream.copy(x, np.ones(64, np.float32))
        double[64, stream](x, out)
        with stream:
            aiodev.zeros(1 << 15, dtype=np.float32)  # a smaller one is written by the host
        await stream.synchronize()
    copy, kernel, fill = work(prof)
    assert [copy.name, kernel.name, fill.name] == ["copy", "double", "fill"]
    assert {each.stream_id for each in work(prof)} == {stream.stream_id}
    assert {each.device for each in work(prof)} == {aiodev.Device(device)}
    assert {each.task for each in work(prof)} == {"the task"}
    assert [copy.nbytes, kernel.nbytes, fill.nbytes] == [256, 512, 1 << 17]
    assert [copy.shape, kernel.shape, fill.shape] == [None, (64,), None]
    assert all(each.site is not None and each.site.startswith(__file__) for each in work(prof))
    times = [(each.submitted_ns, each.start_ns, each.end_ns) for each in work(prof)]
    assert all(before < submitted <= start <= end < time.perf_counter_ns() for submitted, start, end in times)
    assert copy.end_ns <= kernel.start_ns
    assert kernel.duration_ns == kernel.end_ns - kernel.start_ns
    assert kernel.delay_ns == kernel.start_ns - kernel.submitted_ns
    assert {each.outcome for each in prof.operations} == {"done"}


@pytest.mark.parametrize("seed", range(4))
async def test_random_program_is_there_as_a_whole(device, seed) -> None:
    """Each operation once, by stream and number; those of a stream follow each other; waits are where the program made them."""
    draw = random.Random(seed)
    streams = [aiodev.Stream(device) for _ in range(5)]
    arrays = [aiodev.zeros(256, dtype=np.float32, device=device) for _ in streams]
    await double.compile(arrays[0], arrays[1])
    await aiodev.synchronize(device)
    began = {stream: stream.timeline.submitted for stream in streams}
    made: dict[int, list[str]] = defaultdict(list)
    waits: set[tuple[int, tuple[int, int]]] = set()
    counters = profiler.counters()["waits_enqueued"]
    async with profiler.profile() as prof:
        for _ in range(300):
            number = draw.randrange(len(streams))
            stream, own = streams[number], arrays[number]
            match draw.randrange(5):
                case 0:
                    double[256, stream](own, own)
                    made[stream.stream_id].append("double")
                case 1:
                    stream.copy(own, np.ones(256, np.float32))
                    made[stream.stream_id].append("copy")
                case 2 | 3:
                    other = draw.choice(streams)
                    waits.add((stream.stream_id, (other.stream_id, other.timeline.submitted)))
                    stream.wait_stream(other)
                case 4:
                    stream.call(int)
                    made[stream.stream_id].append("int")
            if not draw.randrange(20):
                await stream.synchronize()
        for stream in streams:
            await stream.synchronize()
    seen = Counter((each.stream_id, each.value) for each in prof.operations)
    expected = [(s.stream_id, value) for s in streams for value in range(began[s] + 1, s.timeline.submitted + 1)]
    assert seen == Counter(expected)
    by_stream = {s.stream_id: [each for each in prof.operations if each.stream_id == s.stream_id] for s in streams}
    for stream_id, mine in by_stream.items():
        assert [each.value for each in mine] == sorted(each.value for each in mine)
        assert [each.name for each in mine if each.kind != "wait"] == made[stream_id]
        for each in mine:
            assert each.submitted_ns <= each.start_ns <= each.end_ns
        for each, following in zip(mine, mine[1:], strict=False):
            assert each.end_ns <= following.start_ns
    waited = [each for each in prof.operations if each.kind == "wait"]
    assert {(each.stream_id, each.after) for each in waited} <= waits
    assert len(waited) == profiler.counters()["waits_enqueued"] - counters > 0
    ends = {(each.stream_id, each.value): each.end_ns for each in prof.operations}
    assert all(ends[each.after] <= each.end_ns for each in waited if each.after in ends)


async def test_failures_and_what_they_keep_from_running(device) -> None:
    """What failed, what did not run for that, and what was withdrawn is there, and says so."""
    stream, other = aiodev.Stream(device), aiodev.Stream(device)
    x = aiodev.asarray(np.array([1.0, -1.0]), device=device)
    await checked.compile(x)
    await aiodev.synchronize(device)  # x is written on another stream
    async with profiler.profile() as prof:
        failed = checked[2, stream](x)
        stream.copy(x, np.ones(2))
        with pytest.raises(aiodev.KernelError):
            await failed
        with Latch(other):
            withdrawn = other.copy(x, np.ones(2))
            assert withdrawn.cancel()
        with pytest.raises(aiodev.WithdrawnError):
            await withdrawn
        await stream.copy(x, np.zeros(2))
    outcomes = [(each.name, each.outcome) for each in work(prof)]
    assert outcomes == [("checked", "failed"), ("copy", "skipped"), ("copy", "withdrawn"), ("copy", "done")]
    assert all(each.submitted_ns <= each.start_ns <= each.end_ns for each in work(prof))
    await aiodev.synchronize(device)


async def test_what_is_behind_a_withdrawn_operation_is_skipped(device) -> None:
    """As its waiter is told: only what was withdrawn itself was withdrawn, also where that was behind another one."""
    stream, other = aiodev.Stream(device), aiodev.Stream(device)
    x = aiodev.asarray(np.array([1.0, 1.0]), device=device)
    await checked.compile(x)
    await aiodev.synchronize(device)
    async with profiler.profile() as prof:
        with Latch(stream):
            done = stream.copy(x, np.ones(2))
            gone = stream.copy(x, np.ones(2))
            behind = [stream.copy(x, np.ones(2)), checked[2, stream](x), stream.call(int)]
            also_gone = stream.copy(x, np.ones(2))
            last = stream.copy(x, np.ones(2))
            other.wait_stream(stream)
            elsewhere = other.copy(x, np.ones(2))
            assert also_gone.cancel() and gone.cancel()
        await done
        for each in (*behind, last, elsewhere):
            with pytest.raises(aiodev.DependencyError):
                await each
            assert not each.cancelled()
        assert gone.cancelled() and also_gone.cancelled()
        await stream.copy(x, np.zeros(2))
    del stream, done, gone, behind, also_gone, last, each  # a profile says so for longer than there is a stream
    first = prof.operations[0].stream_id
    found = [each.outcome for each in prof.operations if each.stream_id == first and each.kind in ("copy", "kernel", "call")]
    assert found == ["done", "withdrawn", *["skipped"] * 3, "withdrawn", "skipped", "done"]
    assert [each.outcome for each in prof.operations if each.stream_id != first] == ["failed", "skipped"]
    await aiodev.synchronize(device)


async def test_calls_and_futures_by_name(device) -> None:
    """A function is there by its name, and a wait for the host as such, for as long as they hold the stream."""
    stream, future = aiodev.Stream(device), asyncio.get_running_loop().create_future()
    async with profiler.profile() as prof:
        stream.call(time.perf_counter_ns)
        stream.wait_future(future)
        await asyncio.sleep(0)
        future.set_result(None)
        await stream.synchronize()
    assert [(each.kind, each.name) for each in prof.operations] == [("call", "perf_counter_ns"), ("future", "Future")]


async def test_compilation_holds_the_stream(device) -> None:
    """A kernel's first launch shows what its stream waits for; one that was compiled before may be there at once."""
    never_seen = time.time_ns()

    @aiodev.kernel
    def fresh(i, x):
        x[i] += never_seen

    stream, x = aiodev.Stream(device), aiodev.zeros(4, device=device)
    async with profiler.profile() as prof:
        await fresh[4, stream](x)
    mine = [each for each in prof.operations if each.stream_id == stream.stream_id and each.kind != "wait"]
    assert [(each.kind, each.name) for each in mine] == [("compilation", "fresh"), ("kernel", "fresh")]


async def test_what_is_in_flight_is_pending(device) -> None:
    """Leaving waits for nothing: what is not done has no end, until it is done."""
    stream, x = aiodev.Stream(device), aiodev.empty(4, device=device)
    with Latch(stream):
        async with profiler.profile() as prof:
            done = stream.copy(x, np.ones(4))
        (copy,) = work(prof)
        assert (copy.outcome, copy.end_ns, copy.duration_ns) == ("pending", None, None)
    await done
    (copy,) = work(prof)
    assert copy.outcome == "done"
    assert prof.began_ns < copy.submitted_ns < prof.ended_ns < copy.start_ns <= copy.end_ns


async def test_streams_made_inside_and_nothing_afterwards(device) -> None:
    """A stream that is made in the block is in the profile; once the block is left, nothing is added."""
    host, array = np.ones(8), aiodev.empty(8, device=device)
    async with profiler.profile() as prof:
        stream = aiodev.Stream(device)
        await stream.copy(array, host)
    assert [each.stream_id for each in work(prof)] == [stream.stream_id]
    await stream.copy(array, host)
    assert len(work(prof)) == 1


async def test_profile_within_a_profile(device) -> None:
    """Each sees what is submitted while its own block runs."""
    stream, array, host = aiodev.Stream(device), aiodev.empty(8, device=device), np.ones(8)
    async with profiler.profile() as outer:
        await stream.copy(array, host)
        async with profiler.profile() as inner:
            await stream.copy(array, host)
        await stream.copy(array, host)
    values = [each.value for each in work(outer)]
    assert len(values) == 3
    assert [each.value for each in work(inner)] == values[1:2]


async def test_tasks_that_profile_side_by_side(device) -> None:
    """Profiles overlap without one within the other, and each has what was submitted meanwhile, by any task."""
    stream, array, host = aiodev.Stream(device), aiodev.empty(8, device=device), np.ones(8)
    both, first_left = asyncio.Event(), asyncio.Event()

    async def first() -> list[profiler.Operation]:
        async with profiler.profile() as prof:
            await stream.copy(array, host)
            await both.wait()
            await stream.copy(array, host)
        first_left.set()
        return work(prof)

    async def second() -> list[profiler.Operation]:
        async with profiler.profile() as prof:
            both.set()
            await first_left.wait()
            await stream.copy(array, host)
        return work(prof)

    tasks = [asyncio.create_task(first(), name="first"), asyncio.create_task(second(), name="second")]
    mine, theirs = await asyncio.gather(*tasks)
    assert [each.task for each in mine] == ["first", "first"]
    assert [each.task for each in theirs] == ["first", "second"]


async def test_no_more_than_there_is_room_for(device) -> None:
    """What goes beyond ``most`` is counted, and not kept."""
    stream, array = aiodev.Stream(device), aiodev.empty(8, device=device)
    async with profiler.profile(most=5) as prof:
        for _ in range(12):
            await stream.copy(array, np.ones(8))
    assert len(prof.operations) == 5
    assert prof.dropped == 7
    assert "7 operations were dropped" in prof.table()


async def test_later_profile_has_room_of_its_own(device) -> None:
    """A profile that begins when another has filled its log has room for as many as it was promised."""
    stream, array = aiodev.Stream(device), aiodev.empty(8, device=device)
    async with profiler.profile(most=3):
        for _ in range(4):
            await stream.copy(array, np.ones(8))
        async with profiler.profile(most=3) as later:
            for _ in range(3):
                await stream.copy(array, np.ones(8))
    assert [each.name for each in work(later)] == ["copy"] * 3
    assert {each.task is not None for each in work(later)} == {True}


async def test_full_stream_leaves_nothing_half_recorded(device) -> None:
    """A submission that is refused is not in the profile."""
    stream, array = aiodev.Stream(device, maxsize=4), aiodev.empty(8, device=device)
    async with profiler.profile() as prof:
        with Latch(stream), pytest.raises(aiodev.StreamFullError):
            for _ in range(9):
                stream.copy(array, np.ones(8))
        await stream.synchronize()
    assert len(work(prof)) == 3
    assert {each.outcome for each in work(prof)} == {"done"}


async def test_queue_that_another_stream_had_before() -> None:
    """Where streams come and go, each operation is its own stream's, whichever queue it had."""
    array, ids = aiodev.empty(8, device="cpu"), []
    async with profiler.profile() as prof:
        for _ in range(20):
            stream = aiodev.Stream("cpu")
            ids.append(stream.stream_id)
            await stream.copy(array, np.ones(8))
            del stream
            await asyncio.sleep(0.001)
    assert [each.stream_id for each in work(prof)] == ids


async def test_memory_in_use(device) -> None:
    """Each buffer that is allocated, and its end, with the memory in use."""
    aiodev.empty(1000, dtype=np.uint8, device=device)
    before = aiodev.memory.memory_allocated(device)
    async with profiler.profile() as prof:
        array = aiodev.empty(1000, dtype=np.uint8, device=device)
        nbytes = aiodev.memory.memory_allocated(device) - before
        del array
    allocated, freed = (event for event in prof.memory_events if event.device == aiodev.Device(device))
    assert (allocated.nbytes, freed.nbytes) == (nbytes, -nbytes)
    assert allocated.allocated - freed.allocated == nbytes
    assert prof.began_ns < allocated.time_ns <= freed.time_ns < prof.ended_ns
    aiodev.empty(1000, dtype=np.uint8, device=device)
    assert len(prof.memory_events) == 2


async def test_memory_history_goes_on() -> None:
    """A profile leaves the recording of allocations' lines as it was."""
    aiodev.memory.record_memory_history(True, "cpu")
    try:
        async with profiler.profile():
            inside = aiodev.empty(5_000_000, dtype=np.uint8, device="cpu")
        outside = aiodev.empty(6_000_000, dtype=np.uint8, device="cpu")
        sites = {
            block["site"] for segment in aiodev.memory.memory_snapshot("cpu") for block in segment["blocks"] if block["site"]
        }
        assert len([site for site in sites if site.startswith(__file__)]) == 2
    finally:
        aiodev.memory.record_memory_history(False, "cpu")
        del inside, outside


async def test_one_block_a_profile() -> None:
    """A profile that was entered is not entered again, and one that was not has nothing to show."""
    prof = profiler.profile()
    assert (prof.operations, prof.memory_events, prof.dropped) == ([], [], 0)
    assert prof.table() and prof._repr_html_()
    async with prof:
        pass
    with pytest.raises(RuntimeError, match="one block"):
        async with prof:
            pass


@pytest.mark.parametrize("most", [0, -1])
def test_room_for_nothing_is_refused(most) -> None:
    """A profile has room for one operation at least."""
    with pytest.raises(ValueError, match="most"):
        profiler.profile(most=most)


def test_results_outlive_the_loop() -> None:
    """A profile can be read when its loop is closed."""

    async def main() -> profiler.Profile:
        async with profiler.profile() as prof:
            await aiodev.Stream("cpu").copy(aiodev.empty(4, device="cpu"), np.ones(4))
        return prof

    assert [each.name for each in work(asyncio.run(main()))] == ["copy"]


def test_dropped_profile_ends() -> None:
    """One whose loop was closed in the midst of its block ends when it is collected."""
    loop = asyncio.new_event_loop()

    async def enter() -> profiler.Profile:
        return await profiler.profile().__aenter__()

    prof = loop.run_until_complete(enter())
    loop.close()
    recorder = trace.active
    assert recorder is not None
    del prof
    gc.collect()
    deadline = time.monotonic() + 30
    while trace.active is recorder and time.monotonic() < deadline:
        time.sleep(0.001)  # for the watcher's thread
    assert trace.active is None


def test_forked_child_has_no_profile() -> None:
    """In a child a profile of the parent has ended; the child may profile its own streams, and the parent goes on."""
    run(
        """
        import asyncio
        import numpy as np
        from aiodev import profiler

        async def copies(prof):
            await aiodev.Stream("cpu").copy(aiodev.empty(4, device="cpu"), np.ones(4))
            return [each.name for each in prof.operations if each.runs]

        async def own():
            async with profiler.profile() as prof:
                return await copies(prof)

        async def main():
            async with profiler.profile() as prof:
                assert await copies(prof) == ["copy"]

                def run():
                    asyncio.events._set_running_loop(None)
                    assert [each.name for each in prof.operations if each.runs] == ["copy"]
                    assert asyncio.run(own()) == ["copy"]
                    assert [each.name for each in prof.operations if each.runs] == ["copy"]

                in_child(run)
                assert await copies(prof) == ["copy", "copy"]

        asyncio.run(main())
        """
    )


@pytest.mark.anyio
async def test_profile_on_every_loop() -> None:
    """A profile names the task and has the loop's lag on asyncio, uvloop and trio."""
    stream, array = aiodev.Stream("cpu"), aiodev.empty(8, device="cpu")
    async with profiler.profile() as prof:
        await stream.copy(array, np.ones(8))
        await anyio.sleep(0.01)
    assert [bool(each.task) for each in work(prof)] == [True]
    assert len(prof.lag) > 0


async def test_threads_without_a_loop(device) -> None:
    """What other threads submit is there, without a task."""
    stream, array = aiodev.Stream(device), aiodev.empty(8, device=device)
    async with profiler.profile() as prof:
        await asyncio.to_thread(lambda: stream.copy(array, np.ones(8)).synchronize_blocking())
    assert [(each.name, each.task) for each in work(prof)] == [("copy", None)]


async def test_operations_that_were_submitted_before(device) -> None:
    """What was submitted before the block is not in it, even if it runs inside."""
    stream, array = aiodev.Stream(device), aiodev.empty(8, device=device)
    with Latch(stream):
        done = stream.copy(array, np.ones(8))
        prof = profiler.profile()
        await prof.__aenter__()
    await done
    await prof.__aexit__(None, None, None)
    assert prof.operations == []


def test_repr_says_how_much() -> None:
    """A profile shows how many operations it has, and for how long it ran."""

    async def main() -> str:
        async with profiler.profile() as prof:
            await aiodev.Stream("cpu").copy(aiodev.empty(4, device="cpu"), np.ones(4))
        return repr(prof)

    assert repr(profiler.profile()) == "<aiodev.profiler.Profile: not entered>"
    assert asyncio.run(main()).startswith("<aiodev.profiler.Profile: 1 operations, ")


async def test_counters_count_records() -> None:
    """``events_recorded`` goes up by one for each record."""
    stream = aiodev.Stream("cpu")
    before = profiler.counters()["events_recorded"]
    event = stream.record_event()
    stream.record_event(event)
    assert profiler.counters()["events_recorded"] - before == 2


async def test_note_that_comes_late(device) -> None:
    """What a thread has submitted before the block was left is whole, though the thread notes its task and bytes afterwards."""
    stream, array = aiodev.Stream(device), aiodev.empty(8, device=device)
    async with profiler.profile(), profiler.profile() as prof:
        recorder = trace.active
        assert recorder is not None
        stream.copy(array, np.ones(8))
        late = recorder.words[-trace.NOTE_WORDS :]
        del recorder.words[-trace.NOTE_WORDS :]
    recorder.words += late
    await stream.synchronize()
    assert [(each.name, each.nbytes) for each in work(prof)] == [("copy", 64)]


class SlowStart(SimulatedBackend):
    """A simulated device that starts when the test lets it."""

    may_start = threading.Event()

    def start(self) -> None:
        assert self.may_start.wait(30)
        super().start()


async def test_submitted_while_the_device_starts(register) -> None:
    """What waits for its device to start is pending, and is there once, with its times, when the device has had it."""
    name = register(SlowStart)
    stream, other = aiodev.Stream(name), aiodev.Stream(name)
    async with profiler.profile() as prof:
        stream.call(int)
        other.wait_stream(stream)
        done = other.call(float)
        assert [(each.name, each.outcome) for each in prof.operations] == [("int", "pending"), ("float", "pending")]
        SlowStart.may_start.set()
        await done
    assert sorted(each.kind for each in prof.operations) == ["call", "call", "wait"]
    assert all(each.submitted_ns <= each.start_ns <= each.end_ns for each in prof.operations)
    assert {each.outcome for each in prof.operations} == {"done"}

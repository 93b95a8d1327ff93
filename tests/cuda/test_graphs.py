"""Graphs on CUDA: replays are CUDA graphs of the driver where that takes the operations, and keep what graphs promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., str]


def test_graphs_are_replayed(run: Run) -> None:
    """Branches, kernels, copies, calls of the host, inputs that change; what waits is refused."""
    printed = run("""
import numpy as np

@aiodev.kernel
def scale(i, factor, x):
    x[i] *= factor[()]

async def main():
    with aiodev.device("cuda"):
        x, y = aiodev.asarray(np.arange(4.0)), aiodev.asarray(np.arange(4.0) + 10)
        host, seen = np.zeros(4), []
        await aiodev.synchronize()
        first, second = aiodev.Stream(), aiodev.Stream()
        async with aiodev.capture(first) as graph:
            source = graph.input("x", x)
            number = graph.input("number", 3.0)
            made = aiodev.empty(4)
            first.copy(made, source)
            second.wait_stream(first)
            second.copy(made[:1], number.reshape(1))
            first.wait_stream(second)
            scale[4](number, made)
            first.copy(host, made)
            first.call(lambda: seen.append(host.tolist()))
        await graph.replay()
        graph.update(x=y, number=7.0)
        await graph.replay()
        print(seen, repr(graph))
        try:
            async with aiodev.capture(first):
                await first.synchronize()
        except aiodev.CaptureError as error:
            print(error.call)
        await first.synchronize()

asyncio.run(main())
""")
    assert printed.splitlines() == [
        "[[9.0, 3.0, 6.0, 9.0], [49.0, 77.0, 84.0, 91.0]] <aiodev.Graph of 5 operations on cuda:0, 2 streams>",
        "Stream.synchronize",
    ]


_PREAMBLE = """
import numpy as np
from aiodev import kernels

@aiodev.kernel
def scale(i, factor, x):
    x[i] *= factor[()]

@aiodev.kernel
def add_to(i, x, y):
    y[i] += x[i]

@aiodev.kernel
def divide(i, x, y):
    y[i] = 12 // x[i]

NAMES = ("cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuGraphExecKernelNodeSetParams", "cuGraphExecUpdate",
         "cuLaunchKernel")
before = {}
def calls():
    now = {name: driver.count(name) for name in NAMES}
    found = [now[name] - before.get(name, 0) for name in NAMES]
    before.update(now)
    return found

def has_run(main):
    async def run():
        async with aiodev.device("cuda"):
            await main()
    asyncio.run(run())
"""


def test_the_second_replay_makes_a_graph(run: Run) -> None:
    """The first submits each operation, the second captures them, and each from then on is one call of the driver."""
    printed = run(
        _PREAMBLE
        + """
async def main():
    x, y = aiodev.asarray(np.arange(4.0)), aiodev.zeros(4)
    await aiodev.synchronize()
    async with aiodev.capture() as graph:
        total = kernels.add(x, 1.0)
        for _ in range(9):
            add_to[4](total, y)
        kernels.multiply(y, 1.0, out=total)
    await graph.replay()
    calls()
    for _ in range(4):
        await graph.replay()
        print(*calls())
    completions = [graph.replay() for _ in range(200)]
    await completions[-1]
    print(*calls(), graph.obstacles)
    print(await y.numpy() / 9, await total.numpy() / 9)
has_run(main)
"""
    ).splitlines()
    assert printed[0] in ("0 0 0 0 11", "1 1 0 0 11")  # while kernels were loaded, the first was submitted one by one
    assert printed[2:4] == ["0 1 0 0 0"] * 2
    assert printed[4] == "0 200 0 0 0 []"
    assert printed[5] == "[205. 410. 615. 820.] [205. 410. 615. 820.]"


def test_what_changes_is_changed_in_the_graph(run: Run) -> None:
    """Numbers by a write ahead of it, arrays of kernels by their nodes, of copies by an update; earlier replays see nothing."""
    printed = run(
        _PREAMBLE
        + """
async def main():
    arrays = [aiodev.full(4, 10.0 ** k) for k in range(4)]
    y = aiodev.zeros(4)
    await aiodev.synchronize()
    async with aiodev.capture() as graph:
        x = graph.input("x", arrays[0])
        factor = graph.input("factor", 1.0)
        add_to[4](x, y)
        scale[4](factor, y)
    for _ in range(3):
        await graph.replay()
    calls()
    graph.replay()
    graph.update(x=arrays[1])
    graph.replay()
    graph.update(x=arrays[2], factor=2.0)
    graph.replay()
    await graph.replay()
    print(*calls(), (await y.numpy())[0], graph.obstacles)
    z = aiodev.zeros(4)
    await aiodev.synchronize()
    async with aiodev.capture() as graph:
        x = graph.input("x", arrays[0])
        aiodev.current_stream().copy(z, x)
        add_to[4](x, z)
    for _ in range(3):
        await graph.replay()
    calls()
    graph.update(x=arrays[3])
    await graph.replay()
    print(*calls(), (await z.numpy())[0])
    await graph.replay()
    print(*calls())
has_run(main)
"""
    ).splitlines()
    # 3, 4, 14, (114) * 2 = 228, (328) * 2 = 656
    assert printed == ["0 4 2 0 0 656.0 []", "0 1 0 1 1 2000.0", "0 1 0 0 0"]


def test_a_kernel_that_fails_in_a_graph(run: Run) -> None:
    """The error names the operation and where it was captured; what is behind it does not run; later replays do."""
    printed = run(
        _PREAMBLE
        + """
async def main():
    x, y, z = aiodev.ones(4, "int64"), aiodev.zeros(4, "int64"), aiodev.zeros(4, "int64")
    await aiodev.synchronize()
    stream = aiodev.Stream()
    async with aiodev.capture(stream) as graph:
        add_to[4](x, z)
        divide[4](x, y)
        add_to[4](y, z)
    for _ in range(3):
        await graph.replay(stream)
    print((await z.numpy()).tolist(), graph.obstacles)
    for round in range(2):
        bad = aiodev.asarray([1, 0, 1, 1])
        x.copy_from(bad)
        await aiodev.synchronize()
        calls()
        first, second = graph.replay(stream), graph.replay(stream)
        for completion in (first, second):
            try:
                await completion
            except aiodev.KernelError as error:
                print(type(error).__name__, type(error.__cause__).__name__, getattr(error, "node", None))
        x.copy_from(aiodev.ones(4, "int64"))
        await aiodev.synchronize()
        await graph.replay(stream)
        print((await z.numpy()).tolist())
    other = aiodev.Stream()
    await graph.replay(other)
    x.copy_from(aiodev.asarray([1, 0, 1, 1]))
    await aiodev.synchronize()
    try:
        await graph.replay(other)
    except aiodev.KernelError as error:
        print("another stream", type(error.__cause__).__name__)
has_run(main)
"""
    ).splitlines()
    assert printed[0] == "[39, 39, 39, 39] []"
    assert printed[1].startswith("KernelError ZeroDivisionError 1")
    assert printed[2].startswith("DependencyError")
    assert printed[3] == "[53, 52, 53, 53]"
    assert printed[-1] == "another stream ZeroDivisionError"


def test_what_a_graph_cannot_hold(run: Run) -> None:
    """Is submitted one by one, with the same outcome, and the graph says why."""
    printed = run(
        _PREAMBLE
        + """
async def replayed(capture):
    async with aiodev.capture() as graph:
        found = capture()
    for _ in range(3):
        await graph.replay()
    print(*(obstacle.replace(library, "") for obstacle in graph.obstacles))
    return found

async def main():
    x, y, host = aiodev.full(4, 3, "int64"), aiodev.zeros(4, "int64"), np.zeros(4, np.int64)
    await aiodev.synchronize()
    def behind():
        divide[4](x, y)
        aiodev.current_stream().copy(x, y)
    await replayed(behind)
    print((await x.numpy()).tolist())
    await replayed(lambda: aiodev.current_stream().copy(host, x))
    print(host.tolist())
    pinned = aiodev.memory.empty_pinned(4, np.int64)
    await replayed(lambda: aiodev.current_stream().copy(pinned, x))
    print(pinned.tolist())
    driver.inject("cuGraphInstantiateWithFlags", 801)
    calls()
    await replayed(lambda: add_to[4](x, y))
    print((await y.numpy()).tolist(), calls()[:2])
has_run(main)
"""
    ).splitlines()
    assert printed[0] == "1 copy: behind a kernel that can fail; the host looks at that first"
    assert printed[1] == "[4, 4, 4, 4]"
    assert printed[2].startswith("0 copy: from or to ordinary memory") and printed[3] == "[4, 4, 4, 4]"
    assert printed[4:6] == ["", "[4, 4, 4, 4]"]
    assert "801" in printed[6] and printed[7] == "[16, 16, 16, 16] [1, 0]"


def test_libraries_in_graphs(run: Run) -> None:
    """Products and transforms are parts of the driver's graph; arrays in their places are changed by capturing them anew."""
    printed = run(
        _PREAMBLE
        + """
from aiodev.kernels import fft
from aiodev.kernels.fft import cufft
from aiodev.kernels.linalg import cublas
cublas.find_library = cufft.find_library = lambda: library
async def main():
    chance = np.random.default_rng(0)
    a, b, c = chance.standard_normal((3, 4, 4))
    x, y, z = map(aiodev.asarray, (a, b, c))
    await aiodev.synchronize()
    await fft.fft(kernels.matmul(x, y)).numpy()
    async with aiodev.capture() as graph:
        found = fft.fft(kernels.matmul(graph.input("x", x), y))
    for _ in range(3):
        await graph.replay()
    np.testing.assert_allclose(await found.numpy(), np.fft.fft(a @ b), 1e-9, 1e-9)
    calls()
    graph.update(x=z)
    await graph.replay()
    print(*calls()[:4], graph.obstacles)
    np.testing.assert_allclose(await found.numpy(), np.fft.fft(c @ b), 1e-9, 1e-9)
has_run(main)
"""
    )
    assert printed == "0 1 0 1 []\n"


def test_graphs_that_are_dropped_while_they_run(run: Run) -> None:
    """The driver's graphs are destroyed when nothing runs that is of them."""
    run(
        _PREAMBLE
        + """
async def main():
    x, y = aiodev.ones(4), aiodev.zeros(4)
    add_to[4](x, y)
    await aiodev.synchronize()
    for _ in range(20):
        async with aiodev.capture() as graph:
            for _ in range(3):
                add_to[4](x, y)
        for _ in range(5):
            done = graph.replay()
        del graph
    await done
    await aiodev.synchronize()
    while driver.count("cuGraphExecDestroy") < 19:
        await asyncio.sleep(0)
    assert (await y.numpy() == 301).all()
has_run(main)
"""
    )


_BLOCKS = (
    _PREAMBLE
    + """
NAMES = ("cuGraphAddNode", "cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuLaunchKernel")

@aiodev.kernel
def count_down(i, left):
    left[i] -= 1

@aiodev.kernel
def copy_all(i, x, y):
    y[i] = x[i]
"""
)


def test_blocks_are_conditional_nodes(run: Run) -> None:
    """Loops and branches, within each other too, are one graph from the first replay on; other arrays have it made anew."""
    printed = run(
        _BLOCKS
        + """
async def main():
    x, z, y, out = aiodev.ones(4, "int64"), aiodev.full(4, 100, "int64"), aiodev.zeros(4, "int64"), aiodev.zeros(4, "int64")
    left, even = aiodev.zeros(1, "int32"), aiodev.zeros(1, "bool")
    await aiodev.synchronize()
    stream = aiodev.current_stream()
    async with aiodev.capture(stream) as graph:
        source = graph.input("x", x)
        stream.copy(left, graph.input("rounds", 3, "int32").reshape(1))
        with graph.while_(left):
            add_to[4](source, y)
            kernels.equal(kernels.remainder(left, 2), 0, out=even)
            with graph.if_(even):
                add_to[4](y, out)
                with graph.if_(left):
                    pass
            count_down[1](left)
        with graph.if_(even):
            y[:] = -1
    for rounds in (3, 0, 2):
        graph.update(rounds=rounds)
        await graph.replay()
        print((await y.numpy())[0], (await out.numpy())[0], calls()[:3])
    graph.update(x=z, rounds=1)
    await graph.replay()
    print((await y.numpy())[0], calls()[:3])
    done = [graph.replay() for _ in range(20)]
    await done[-1]
    print((await y.numpy())[0], calls()[:3], graph.obstacles)
    del graph
has_run(main)
"""
    ).splitlines()
    assert printed == ["3 2 [4, 1, 1]", "3 2 [0, 0, 1]", "5 6 [0, 0, 1]", "105 [4, 1, 1]", "2105 [0, 0, 20] []"]


def test_failures_in_blocks(run: Run) -> None:
    """A failure ends the rounds, and what is behind it does not run, copies included; the next replay is another one."""
    printed = run(
        _BLOCKS
        + """
async def main():
    x, y, out = aiodev.asarray([1, 2, 0, 4]), aiodev.zeros(4, "int64"), aiodev.zeros(4, "int64")
    left, given, host = aiodev.zeros(1, "int64"), aiodev.full(1, 3, "int64"), np.zeros(5, np.int64)
    stream = aiodev.Stream()
    async with aiodev.capture(stream) as graph:
        stream.copy(left, given)
        with graph.while_(left):
            count_down[1](left)
            divide[4](x, y)
            stream.copy(out, y)
        out[:] = out + 1
    await aiodev.synchronize()
    for _ in range(2):
        try:
            await graph.replay(stream)
        except aiodev.KernelError as error:
            print(type(error.__cause__).__name__, error.node)
        stream.copy(host[:1], left)
        await stream.copy(host[1:], out)
        print(host.tolist())
    ones = aiodev.ones(4, "int64")
    await aiodev.synchronize()
    await stream.copy(x, ones)
    done = [graph.replay(stream) for _ in range(2)]
    await done[-1]
    print((await left.numpy()).tolist(), (await out.numpy()).tolist(), graph.obstacles)
has_run(main)
"""
    ).splitlines()
    assert printed == ["ZeroDivisionError 3", "[2, 0, 0, 0, 0]"] * 2 + ["[0] [13, 13, 13, 13] []"]


def test_blocks_that_the_driver_refuses(run: Run) -> None:
    """Whatever call refuses a block: each replay says so, and captures of other graphs are as before."""
    printed = run(
        _BLOCKS
        + """
async def main():
    x, y, left = aiodev.ones(4, "int64"), aiodev.zeros(4, "int64"), aiodev.ones(1, "int64")
    add_to[4](x, y)
    await aiodev.synchronize()
    refusals = {"cuGraphConditionalHandleCreate": 2, "cuGraphAddNode": 3, "cuStreamUpdateCaptureDependencies": 0,
                "cuStreamBeginCaptureToGraph": 1, "cuStreamGetCaptureInfo": 5, "cuLaunchKernel": 3, "cuStreamEndCapture": 1,
                "cuGraphInstantiateWithFlags": 0}
    for number, (name, after) in enumerate(refusals.items()):
        stream = aiodev.Stream()
        async with aiodev.capture(stream) as graph:
            for _ in range(2):
                with graph.if_(left):
                    with graph.if_(left):
                        add_to[4](x, y)
                        with graph.if_(left):
                            add_to[4](x, y)
        driver.inject(name, 801, after)
        for _ in range(2):
            try:
                await graph.replay(stream)
            except aiodev.DeviceError as error:
                assert "801" in str(error) and "801" in graph.obstacles[0], (name, error)
                print(number, end=" ")
        other = aiodev.Stream()
        async with aiodev.capture(other) as graph:
            with graph.if_(left):
                add_to[4](x, y)
        await graph.replay(other)
    print((await y.numpy()).tolist())
has_run(main)
"""
    )
    assert printed == " ".join(f"{number} {number}" for number in range(8)) + " [9, 9, 9, 9]\n"


def test_drivers_without_blocks(run: Run) -> None:
    """Where the driver is older, or does not compile the kernel that sets conditions, blocks are refused at their capture."""
    for older in ("driver._library.standin_version(12030)", "driver.inject('cuModuleLoadData', 221)"):
        printed = run(
            _BLOCKS
            + older
            + """
async def main():
    x, y = aiodev.ones(4, "int64"), aiodev.zeros(4, "int64")
    add_to[4](x, y)
    await aiodev.synchronize()
    try:
        async with aiodev.capture() as graph:
            with graph.while_(x[:1]):
                add_to[4](x, y)
    except aiodev.CaptureError as error:
        print(error)
    async with aiodev.capture() as graph:
        add_to[4](x, y)
    for _ in range(3):
        await graph.replay()
    print((await y.numpy()).tolist(), calls()[1:3])
has_run(main)
"""
        ).splitlines()
        assert "no command buffers that branch" in printed[0] and printed[1] == "[4, 4, 4, 4] [1, 2]"


def test_blocks_with_what_the_device_cannot_run(run: Run) -> None:
    """A replay says what it is, and nothing of it is submitted."""
    printed = run(
        _BLOCKS
        + """
async def main():
    x, host, left = aiodev.ones(4, "int64"), np.zeros(4, np.int64), aiodev.ones(1, "int64")
    await aiodev.synchronize()
    first, second = aiodev.Stream(), aiodev.Stream()
    async with aiodev.capture(first) as graph:
        count_down[1](left)
        second.wait_stream(first)
        with second:
            with graph.if_(left):
                second.copy(host, x)
        first.wait_stream(second)
    for _ in range(2):
        try:
            graph.replay(first)
        except RuntimeError as error:
            print(error)
    print((await left.numpy()).tolist(), graph.obstacles)
has_run(main)
"""
    ).splitlines()
    reason = "1 copy: from or to ordinary memory of the host; pin it"
    assert printed[:2] == [f"replay: the graph has blocks, which only the device can run, and not these: {reason}"] * 2
    assert printed[2] == f"[1] ['{reason}']"


def test_draws_in_blocks(run: Run) -> None:
    """Rounds, what follows them and direct calls draw one sequence; nothing waits for the number of rounds."""
    printed = run(
        _BLOCKS
        + """
from aiodev.kernels import random
async def main():
    total = aiodev.zeros(6)
    left = aiodev.zeros(1, "int32")
    g, model = (aiodev.Generator().manual_seed(7) for _ in range(2))
    await aiodev.synchronize()
    stream = aiodev.current_stream()
    async with aiodev.capture(stream) as graph:
        stream.copy(left, graph.input("rounds", 3, "int32").reshape(1))
        first = random.random(6, generator=g)
        with graph.while_(left):
            random.random(out=total, generator=g)
            count_down[1](left)
        behind = random.random(6, generator=g)
    for rounds in (3, 1, 2):
        graph.update(rounds=rounds)
        graph.replay()
        eager = random.random(5, generator=g)
        found = [await x.tolist() for x in (first, total, behind, eager)]
        expected = [await random.random(6, generator=model).tolist()]
        for _ in range(rounds):
            last = await random.random(6, generator=model).tolist()
        expected += [last, await random.random(6, generator=model).tolist(), await random.random(5, generator=model).tolist()]
        print(found == expected, g.get_offset() == model.get_offset(), graph.obstacles)
has_run(main)
"""
    ).splitlines()
    assert printed == ["True True []"] * 3


_ROWS = """
@aiodev.kernel
def write_row(i, count, rows):
    rows[count[0], i] = 10 * count[0] + i

@aiodev.kernel
def end_round(i, rounds, count, left, held):
    count[i] += 1
    left[i] = count[i] < rounds[()]
    held[i] = count[i] == 2

@aiodev.kernel
def look(i, held, released):
    held[i] = released[i] == 0

async def captured(stream, most=4):
    rows, count, left, held, released = aiodev.zeros((most, 2), "int64"), *aiodev.zeros((4, 1), "int64")
    await aiodev.synchronize()
    async with aiodev.capture(stream) as graph:
        rounds = graph.input("rounds", 3, "int64")
        stream.copy(left, rounds.reshape(1))
        count[:] = 0
        held[:] = 0
        with graph.while_(left, rows=rows):
            with graph.while_(held):
                look[1](held, released)
            write_row[2](count, rows)
            end_round[1](rounds, count, left, held)
    return graph, rows, released
"""


@pytest.mark.parametrize("way", ["poll", "callback", "event"])
def test_rows_while_a_loop_runs(run: Run, way: str) -> None:
    """However the end of work is noticed, a row is there before later rounds are over; a replay more needs no new graph."""
    printed = run(
        _BLOCKS
        + _ROWS
        + """
async def main():
    stream, other = aiodev.Stream(priority=-1), aiodev.Stream()
    graph, rows, released = await captured(stream)
    one = aiodev.ones(1, "int64")
    await aiodev.synchronize()
    done = graph.replay(stream)
    reader = graph.rows(rows)
    first = [await anext(reader) for _ in range(2)]
    print(*(row.tolist() for row in first), done.query())
    other.copy(released, one)
    async for row in reader:
        print(row.tolist())
    await done
    before = driver.count("cuGraphInstantiateWithFlags")
    for rounds in (2, 0, 4):
        graph.update(rounds=rounds)
        graph.replay(stream)
        print([int(row[0]) // 10 async for row in graph.rows(rows)], driver.count("cuGraphInstantiateWithFlags") - before)
has_run(main)
""",
        AIODEV_CUDA_WAIT=way,
    ).splitlines()
    assert printed[:2] == ["[0, 1] [10, 11] False", "[20, 21]"]
    assert printed[2:] == ["[0, 1] 0", "[] 0", "[0, 1, 2, 3] 0"]


def test_a_round_that_fails(run: Run) -> None:
    """It signals nothing, nor does what follows it; its reader gets its error, and the next replay's rows are whole."""
    printed = run(
        _BLOCKS
        + """
@aiodev.kernel
def write_quotient(i, x, count, rows, left):
    rows[count[0]] = 12 // x[count[0]]
    count[0] += 1
    left[0] = count[0] < 4

async def main():
    stream = aiodev.Stream()
    x, rows, count, left = aiodev.ones(4, "int64"), aiodev.zeros(4, "int64"), *aiodev.zeros((2, 1), "int64")
    host = np.array([3, 4, 0, 6])
    await aiodev.synchronize()  # what fills them is on another stream
    with stream:
        x[:] = aiodev.asarray(host)
    await aiodev.synchronize()
    async with aiodev.capture(stream) as graph:
        count[:] = 0
        left[:] = 1
        with graph.while_(left, rows=rows):
            write_quotient[1](x, count, rows, left)
    for _ in range(2):
        graph.replay(stream)
        try:
            async for row in graph.rows(rows):
                print(row)
        except aiodev.KernelError as error:
            print(type(error.__cause__).__name__)
        with stream:
            x[:] = aiodev.asarray(host + 1)
        await stream.synchronize()
has_run(main)
"""
    ).splitlines()
    assert printed == ["4", "3", "ZeroDivisionError", "3", "2", "12", "1"]


def test_drivers_without_signals(run: Run) -> None:
    """Where the driver does not compile the kernel that signals, blocks are what they are, and rows are refused."""
    printed = run(
        _BLOCKS
        + _ROWS
        + """
driver.inject("cuModuleLoadData", 221, 1)
async def main():
    stream = aiodev.Stream()
    try:
        await captured(stream)
    except aiodev.CaptureError as error:
        print(error)
    left = aiodev.ones(1, "int64")
    await aiodev.synchronize()
    async with aiodev.capture(stream) as graph:
        with graph.while_(left):
            count_down[1](left)
    await graph.replay(stream)
    print((await left.numpy()).tolist())
has_run(main)
"""
    ).splitlines()
    assert "cannot signal the end of a round" in printed[0] and printed[1] == "[0]"

"""Graphs in files: what is loaded does what was saved; what cannot be is refused by name."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import graph_kernels as programs
import numpy as np
import pytest

import aiodev
from aiodev import kernels
from aiodev._core.streams import trace
from aiodev.kernels import random as draws

SIZE = 8


async def ready(device: str, *values: Any) -> list[aiodev.Array]:
    arrays = [aiodev.asarray(value, device=device) for value in values]
    await aiodev.synchronize(device)
    return arrays


async def saved(device: str, path: Path, body: Callable[..., Any], *hosts: Any) -> aiodev.Graph:
    """A graph of a body that is given the graph and arrays, the first ones as inputs ``x0`` and so on; saved."""
    arrays = await ready(device, *hosts)
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        body(graph, *(graph.input(f"x{n}", array) for n, array in enumerate(arrays)))
    await graph.save(path)
    return graph


async def test_a_graph_that_was_loaded(device: str, tmp_path: Path) -> None:
    """It writes to the arrays that it is given what the saved one would have written, again and again."""
    constant = aiodev.arange(float(SIZE), device=device)

    def body(graph: aiodev.Graph, x: aiodev.Array, out: aiodev.Array) -> None:
        y = x * 2 + constant
        out[:] = y[::-1] + kernels.sum(y)

    x, out = np.arange(SIZE) + 1.0, np.zeros(SIZE)
    graph = await saved(device, tmp_path / "a.graph", body, x, out)
    assert str(graph).splitlines()[1:]
    constant[:] = 100.0  # of the saved one alone
    x0, x1 = await ready(device, x, out)
    again = await aiodev.Graph.load(tmp_path / "a.graph", x0=x0, x1=x1)
    assert len(again) == len(graph)
    for host in (x, 3 * x):
        await x0.copy_from(host)
        await again.replay()
        y = host * 2 + np.arange(SIZE)
        assert (await x1.numpy()).tolist() == (y[::-1] + y.sum()).tolist()


async def test_inputs_of_a_loaded_graph(device: str, tmp_path: Path) -> None:
    """Its arrays and numbers are updated as those of any; numbers are first what they were when it was saved."""

    def body(graph: aiodev.Graph, x: aiodev.Array) -> None:
        programs.scale[SIZE](graph.input("factor", 2.0), x)

    graph = await saved(device, tmp_path / "a.graph", body, np.ones(SIZE))
    graph.update(factor=5.0)
    await graph.save(tmp_path / "a.graph")
    (x, y) = await ready(device, np.ones(SIZE), np.zeros(SIZE))
    again = await aiodev.Graph.load(tmp_path / "a.graph", x0=x)
    await again.replay()
    assert await x.tolist() == [6.0] * SIZE
    again.update(factor=3.0, x0=y)
    await again.replay()
    assert await x.tolist() == [6.0] * SIZE and await y.tolist() == [1.0] * SIZE


async def test_streams_of_a_loaded_graph(device: str, tmp_path: Path) -> None:
    """It has the streams of the one that was saved, by their ids, and the waits between them."""
    x, out = await ready(device, np.arange(6.0), np.zeros(1))
    first, second = aiodev.Stream(device), aiodev.Stream(device)
    async with aiodev.capture(first) as graph:
        x, out = graph.input("x", x), graph.input("out", out)
        second.wait_stream(first)
        low = kernels.sum(x[:3])
        with second:
            high = kernels.sum(x[3:])
        first.wait_stream(second)
        out[:] = low * high
    await graph.save(tmp_path / "a.graph")
    again = await aiodev.Graph.load(tmp_path / "a.graph", x=x, out=out)
    assert str(again) == str(graph) and again.to_dot() == graph.to_dot()
    for _ in range(2):
        await again.replay()
        assert await out.item() == 36.0


async def test_loops_and_rows_of_a_loaded_graph(device: str, tmp_path: Path) -> None:
    """Loops, branches and rows are what they were."""
    if not aiodev.get_backend(device).executor.has_buffers:
        pytest.skip("a device without command buffers has no loops")

    def body(graph: aiodev.Graph, x: aiodev.Array, out: aiodev.Array, count: aiodev.Array, goes_on: aiodev.Array) -> None:
        rounds = graph.input("rounds", 3)
        count[:] = 0
        goes_on[:] = True
        own = aiodev.ones(1, "bool")
        with graph.while_(own, rows=out):
            programs.write_row[2](count, x, out)
            programs.end_round[1](count, rounds, goes_on)
            aiodev.current_stream(device).copy(own, goes_on)

    hosts = np.array([10, 20]), np.zeros((SIZE, 2), np.int64), np.zeros(1, np.int64), np.zeros(1, bool)
    await saved(device, tmp_path / "a.graph", body, *hosts)
    arrays = await ready(device, *hosts)
    graph = await aiodev.Graph.load(tmp_path / "a.graph", **{f"x{n}": array for n, array in enumerate(arrays)})
    for rounds in (3, 5, 1):
        graph.update(rounds=rounds)
        graph.replay()
        assert [row.tolist() async for row in graph.rows(arrays[1])] == [[10 + k, 20 + k] for k in range(rounds)]


async def test_draws_of_a_loaded_graph(device: str, tmp_path: Path) -> None:
    """It draws from the default generator what direct calls would draw there."""
    generator = aiodev.Generator(device)

    def body(graph: aiodev.Graph, x: aiodev.Array) -> None:
        x[:] = draws.random(SIZE, generator=generator)

    await saved(device, tmp_path / "a.graph", body, np.zeros(SIZE))
    (x,) = await ready(device, np.zeros(SIZE))
    again = await aiodev.Graph.load(tmp_path / "a.graph", x0=x)
    default, own = aiodev.default_generator(device).manual_seed(5), aiodev.Generator(device).manual_seed(5)
    for _ in range(2):
        await again.replay()
        assert await x.tolist() == await draws.random(SIZE, generator=own).tolist()
    assert default.get_offset() == own.get_offset()


async def test_library_functions_are_saved(device: str, tmp_path: Path) -> None:
    """Kernels that the library makes as it goes, tables of their arguments, and functions of LAPACK are found again."""

    def body(graph: aiodev.Graph, x: aiodev.Array, out: aiodev.Array) -> None:
        y = kernels.matmul(x, x.T) + kernels.eye(4)
        if device == "cpu":
            y = kernels.fft.irfft(kernels.fft.rfft(kernels.linalg.inv(y)), n=4)
        z = kernels.concat([kernels.sort(y, axis=0), kernels.maximum(y, 0)])[2:6]
        out[:] = kernels.where(z > 0.1, z, kernels.softmax(y, axis=-1))

    x, out = np.random.default_rng(3).standard_normal((4, 4)), np.zeros((4, 4))
    graph = await saved(device, tmp_path / "a.graph", body, x, out)
    await graph.replay()
    arrays = await ready(device, x, out)
    again = await aiodev.Graph.load(tmp_path / "a.graph", x0=arrays[0], x1=arrays[1])
    await again.replay()
    await aiodev.synchronize(device)
    assert np.array_equal(await arrays[1].numpy(), await graph._inputs["x1"].array.numpy())


async def test_failures_of_a_loaded_graph(device: str, tmp_path: Path) -> None:
    """A failure names the kernel, the node, and the line that captured it in the process that saved it."""

    def body(graph: aiodev.Graph, x: aiodev.Array) -> None:
        programs.scale[SIZE](graph.input("factor", 2.0), x)
        programs.refuse_at[SIZE](graph.input("at", 3.0), x)

    await saved(device, tmp_path / "a.graph", body, np.ones(SIZE))
    stream = aiodev.Stream(device)
    (x,) = await ready(device, np.ones(SIZE))
    graph = await aiodev.Graph.load(tmp_path / "a.graph", x0=x)
    with pytest.raises(aiodev.KernelError, match="refuse_at: ValueError: refused") as caught:
        await graph.replay(stream)
    assert caught.value.node == 1
    assert caught.value.submitted_at is not None and __file__ in caught.value.submitted_at


async def test_a_graph_is_saved_again(device: str, tmp_path: Path) -> None:
    """A graph that was loaded is saved to the same bytes."""

    def body(graph: aiodev.Graph, x: aiodev.Array) -> None:
        x[:] = kernels.sort(x * graph.input("factor", 2)) + aiodev.ones(SIZE, "int64")

    await saved(device, tmp_path / "a.graph", body, np.arange(SIZE))
    (x,) = await ready(device, np.arange(SIZE))
    again = await aiodev.Graph.load(tmp_path / "a.graph", x0=x)
    await again.save(tmp_path / "b.graph")
    third = await aiodev.Graph.load(tmp_path / "b.graph", x0=x)
    await third.replay()
    assert await x.tolist() == [2 * k + 1 for k in range(SIZE)]
    assert str(third) == str(again)


async def test_loading_again_makes_no_kernels(device: str, tmp_path: Path) -> None:
    """However often a file is loaded, whether or not the graphs live, its kernels are those of the first time.

    That goes for those with a name and for those that are found by their code, and for one whose code is nowhere.
    """

    @aiodev.kernel
    def halve(i, x):
        x[i] /= 2

    def body(graph: aiodev.Graph, x: aiodev.Array) -> None:
        programs.scale[SIZE](graph.input("factor", 2.0), x)
        halve[SIZE](x)

    path, bad = tmp_path / "a.graph", tmp_path / "b.graph"
    await saved(device, path, body, np.ones(SIZE))
    content = path.read_bytes()
    known, nameless = json.loads(_text(content))["kernels"]
    bad.write_bytes(_edited(content, kernels=[known, {**nameless, "key": "1" * 64}]))
    (x,) = await ready(device, np.ones(SIZE))
    alive, entries = [], set[int]()
    for k in range(6):
        graph = await aiodev.Graph.load(path, x0=x)
        await graph.replay()
        with pytest.raises(aiodev.GraphFileError, match="not there under its name"):
            await aiodev.Graph.load(bad, x0=x)
        alive += [graph] if k % 2 else []
        del graph
        if k == 0:
            entries.update(trace.entries)
    assert set(trace.entries) == entries
    assert await x.tolist() == [4.0] * SIZE  # each replay adds a half


async def test_a_kernel_that_could_not_be_loaded(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph whose kernel has no code fails; one that is loaded afterwards tries again, and leaves the first as it was."""

    def body(graph: aiodev.Graph, x: aiodev.Array) -> None:
        programs.divide[SIZE](graph.input("by", 2.0), x)

    await saved(device, tmp_path / "a.graph", body, np.ones(SIZE))
    stream, (x,) = aiodev.Stream(device), await ready(device, np.ones(SIZE))

    def fails(*args: Any) -> bool:
        raise MemoryError("none left")

    with monkeypatch.context() as patch:
        patch.setattr(aiodev.get_backend(device), "load_cached", fails)
        first = await aiodev.Graph.load(tmp_path / "a.graph", x0=x)
        with pytest.raises(aiodev.CompileError, match="none left"):
            await first.replay(stream)
    entries = set(trace.entries)
    again = await aiodev.Graph.load(tmp_path / "a.graph", x0=x)
    await again.replay(stream)
    with pytest.raises(aiodev.CompileError, match="none left"):
        await first.replay(stream)
    third = await aiodev.Graph.load(tmp_path / "a.graph", x0=x)
    await third.replay(stream)
    assert set(trace.entries) == entries
    host = np.zeros(SIZE)
    await stream.copy(host, x)
    assert host.tolist() == [0.25] * SIZE


def test_another_process_loads_it(tmp_path: Path) -> None:
    """A graph is loaded by a process that has never captured anything; a kernel that has changed there is refused by name."""
    folder = Path(programs.__file__).parent
    script = textwrap.dedent(
        """
        import asyncio, sys
        sys.path.insert(0, sys.argv[2])
        import aiodev, graph_kernels as programs

        async def main():
            x = aiodev.ones(4, device="cpu")
            if sys.argv[3] == "save":
                async with aiodev.capture(aiodev.Stream("cpu")) as graph:
                    x = graph.input("x", x)
                    programs.scale[4](graph.input("factor", 3.0), x)
                    x[:] = x * 2
                await graph.save(sys.argv[1])
            else:
                graph = await aiodev.Graph.load(sys.argv[1], x=x)
                await graph.replay()
                print(await x.tolist())

        asyncio.run(main())
        """
    )

    def run(what: str, modules: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script, str(tmp_path / "a.graph"), str(modules), what]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert run("save", folder).returncode == 0
    assert run("load", folder).stdout == "[8.0, 8.0, 8.0, 8.0]\n"
    changed = (folder / "graph_kernels.py").read_text().replace("* x[i] + 1", "* x[i] + 2")
    (tmp_path / "graph_kernels.py").write_text(changed)
    failed = run("load", tmp_path)
    assert "GraphFileError" in failed.stderr and "kernel graph_kernels:scale is not what it was" in failed.stderr
    (tmp_path / "graph_kernels.py").write_text("")
    loaded = run("load", tmp_path)  # by its code, which the cache still has
    assert loaded.stdout == "[8.0, 8.0, 8.0, 8.0]\n"


async def test_what_is_not_saved(device: str, tmp_path: Path) -> None:
    """Calls of the host, copies to the host, several generators and memory that is used in two ways are refused by name."""
    path, host = tmp_path / "a.graph", np.zeros(SIZE)
    stream = aiodev.Stream(device)

    def call(graph: aiodev.Graph, x: aiodev.Array) -> None:
        aiodev.current_stream(device).call(print)

    def copy(graph: aiodev.Graph, x: aiodev.Array) -> None:
        aiodev.current_stream(device).copy(host, x)

    def draw(graph: aiodev.Graph, x: aiodev.Array) -> None:
        for generator in generators:
            x[:] = draws.random(SIZE, generator=generator)

    generators = [aiodev.Generator(device) for _ in range(2)]
    for body, message in ((call, "calls print"), (copy, "memory of the host"), (draw, "several generators")):
        with pytest.raises(aiodev.GraphFileError, match=message):
            await saved(device, path, body, host)
    (x,) = await ready(device, host)
    async with aiodev.capture(stream) as graph:
        graph.input("x", x[2:4])
        kernels.sum(x)
    with pytest.raises(aiodev.GraphFileError, match="input 'x': the graph uses its memory otherwise"):
        await graph.save(path)
    assert os.listdir(tmp_path) == []


async def test_files_that_are_not_loaded(device: str, tmp_path: Path) -> None:
    """What is no graph, of another form or version, cut short, changed, or for another device says so."""
    path, bad = tmp_path / "a.graph", tmp_path / "b.graph"

    def body(graph: aiodev.Graph, x: aiodev.Array) -> None:
        x[:] = x * 2 + aiodev.ones(SIZE)

    await saved(device, path, body, np.zeros(SIZE))
    (x,) = await ready(device, np.zeros(SIZE))
    content = path.read_bytes()

    def edited(**changes: Any) -> bytes:
        return _edited(content, **changes)

    kernels_gone = [{**one, "key": "0" * 64} for one in json.loads(_text(content))["kernels"]]
    cases = (
        (b"", "holds no graph"),
        (b"PK\x03\x04", "holds no graph"),
        (content.replace(b"graph 1", b"graph 9", 1), "has form 9"),
        (content[:-1], "cut short, or changed"),
        (content[:60], "cut short, or changed"),
        (content + b" ", "cut short, or changed"),
        (edited(aiodev="0.0.1"), "saved by aiodev 0.0.1"),
        (edited(build="x"), "other sources"),
        (edited(device="cuda"), "a graph for cuda devices"),
        (edited(kernels=kernels_gone), "not there under its name"),
    )
    for data, message in cases:
        bad.write_bytes(data)
        with pytest.raises(aiodev.GraphFileError, match=message) as caught:
            await aiodev.Graph.load(bad, x0=x)
        assert caught.value.path == str(bad)
    for missing in (tmp_path / "none.graph", tmp_path, "no\0path"):
        with pytest.raises(aiodev.GraphFileError, match="it cannot be read"):
            await aiodev.Graph.load(missing, x0=x)
    (again,) = await ready(device, np.zeros(SIZE))
    graph = await aiodev.Graph.load(path, x0=again)
    with pytest.raises(aiodev.GraphFileError, match="it cannot be written"):
        await graph.save(tmp_path / "none" / "a.graph")


def _edited(content: bytes, **changes: Any) -> bytes:
    """What is in a file of a graph, with another document."""
    _, _, rest = content.partition(b"\n")
    count, _, text = rest.partition(b"\n")[2].partition(b"\n")
    document = json.loads(text[: int(count)]) | changes
    new = json.dumps(document).encode()
    whole = b"%d\n%s%s" % (len(new), new, text[int(count) :])
    return b"aiodev graph 1\n%s\n%s" % (hashlib.sha256(whole).hexdigest().encode(), whole)


def _text(content: bytes) -> bytes:
    count, _, text = content.split(b"\n", 2)[2].partition(b"\n")
    return text[: int(count)]


async def test_arrays_that_do_not_fit(device: str, tmp_path: Path) -> None:
    """Arrays are those that the graph was saved with, in shape, strides, dtype and device."""

    def body(graph: aiodev.Graph, x: aiodev.Array) -> None:
        x[:] = x * 2

    await saved(device, tmp_path / "a.graph", body, np.zeros(SIZE))
    x, small, wide = await ready(device, np.zeros(SIZE), np.zeros(3), np.zeros(2 * SIZE))
    load = aiodev.Graph.load
    with pytest.raises(TypeError, match="expected the arrays x0, got y"):
        await load(tmp_path / "a.graph", y=x)
    with pytest.raises(TypeError, match="expected the arrays x0, got x0, y"):
        await load(tmp_path / "a.graph", x0=x, y=x)
    with pytest.raises(ValueError, match="x0: expected shape"):
        await load(tmp_path / "a.graph", x0=small)
    with pytest.raises(ValueError, match="x0: expected shape"):
        await load(tmp_path / "a.graph", x0=wide[::2])
    with pytest.raises(TypeError, match=r"x0: expected an array; numbers are given by update\(\)"):
        await load(tmp_path / "a.graph", x0=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="path"):
        await load(3)  # type: ignore[arg-type]


async def test_arrays_that_share_memory(device: str, tmp_path: Path) -> None:
    """They are refused where the graph writes to one of them; what it only reads may be the same twice."""

    def body(graph: aiodev.Graph, x: aiodev.Array, y: aiodev.Array, out: aiodev.Array) -> None:
        out[:] = x * 10 + y

    await saved(device, tmp_path / "a.graph", body, np.ones(SIZE), np.ones(SIZE), np.zeros(SIZE))
    wide, out = await ready(device, np.ones(SIZE + 1), np.zeros(SIZE))
    x, y = wide[:-1], wide[1:]
    for others in ({"x0": x, "x1": out, "x2": out}, {"x0": out, "x1": y, "x2": out}, {"x0": x, "x1": out, "x2": y}):
        with pytest.raises(ValueError, match="x2: it shares memory with 'x.', and one of them is written to"):
            await aiodev.Graph.load(tmp_path / "a.graph", **others)
    graph = await aiodev.Graph.load(tmp_path / "a.graph", x0=x, x1=y, x2=out)
    await graph.replay()
    assert await out.tolist() == [11] * SIZE

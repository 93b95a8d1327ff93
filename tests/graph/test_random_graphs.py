"""Programs at random, of all that a graph can hold, against a sequential model in NumPy.

A program is data: steps that make arrays, change them in place through views, drop them, draw, branch and loop, on several
streams that wait for each other where a value asks for it. It is captured, and the model runs it in order. Between replays
inputs are updated, replays are withdrawn, and other streams change what the graph reads.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selection import examples

import aiodev
from aiodev import kernels, profiler
from aiodev.kernels import random as draws
from aiodev.testing import Latch

SIZE, ARRAYS, STREAMS, MOST = 8, 4, 3, 10007
#: Words by which a replay moves a generator that has failed, or was withdrawn, if it draws in blocks.
SKIPPED = 1 << 40
Values = np.ndarray[Any, np.dtype[np.int64]]
#: Views by their length: how a step sees its operands.
VIEWS: dict[int, list[slice]] = {
    SIZE: [slice(None), slice(None), slice(None, None, -1)],
    4: [slice(None, None, 2), slice(1, None, 2), slice(None, 4), slice(4, None)],
}


@aiodev.kernel
def mix(i, a, x, y):
    y[i] = (3 * y[i] + a * x[i] + i) % 10007


@aiodev.kernel
def scale(i, factor, x):
    x[i] = (factor[()] * x[i] + 1) % 10007


@aiodev.kernel
def bits(i, count, x, out):
    out[i] = x[0] % count


@aiodev.kernel
def count_down(i, left):
    left[i] -= 1


@aiodev.kernel
def refuse(i, number, x):
    if x[0] % 11 == number[()]:
        raise ValueError("refused")


class RefusedError(Exception):
    """What a step of the model raises."""


#: Functions that make an array of two, on the device and in NumPy.
MAKERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (lambda x, y: kernels.add(x, y) % MOST, lambda x, y: (x + y) % MOST),
    "maximum": (lambda x, y: kernels.maximum(x, y), lambda x, y: np.maximum(x, y)),
    "sum": (lambda x, y: (x + kernels.sum(y)) % MOST, lambda x, y: (x + y.sum()) % MOST),
    "take": (lambda x, y: kernels.take(x, y % x.shape[0]), lambda x, y: x[y % len(x)]),
    "sort": (lambda x, y: kernels.sort(x) + y, lambda x, y: np.sort(x) + y),
    "concat": (lambda x, y: kernels.concat([y[::2], x[1::2]]), lambda x, y: np.concatenate([y[::2], x[1::2]])),
}


@dataclass(frozen=True)
class Ref:
    """A view of a value."""

    name: str
    view: slice


@dataclass
class Step:
    """One step; ``inner`` are those of a block."""

    kind: str
    stream: int
    target: Ref | None = None
    sources: tuple[Ref, ...] = ()
    what: Any = None
    inner: list[Step] = field(default_factory=list)

    def all(self) -> Iterator[Step]:
        """The step, and those in it."""
        yield self
        for step in self.inner:
            yield from step.all()

    def names(self) -> tuple[set[str], set[str]]:
        """What it reads, and what it writes."""
        reads, writes = {ref.name for ref in self.sources}, {self.target.name} if self.target is not None else set[str]()
        for step in self.inner:
            more = step.names()
            reads, writes = reads | more[0], writes | more[1]
        return reads, writes


class Author:
    """Makes a program at random."""

    def __init__(self, chance: random.Random, streams: int, fails: bool, blocks: bool) -> None:
        self.chance, self.streams, self.fails, self.blocks = chance, streams, fails, blocks
        self.live = [f"a{n}" for n in range(ARRAYS)]
        self.flags = [f"f{n}" for n in range(6)]
        self.count = 0

    def ref(self, length: int, names: list[str] | None = None) -> Ref:
        return Ref(self.chance.choice(names or self.live), self.chance.choice(VIEWS[length]))

    def program(self) -> list[Step]:
        return [self.step(self.chance.randrange(self.streams), 0) for _ in range(self.chance.randrange(3, 25))]

    def step(self, stream: int, depth: int) -> Step:
        chance, length = self.chance, self.chance.choice([SIZE, SIZE, 4])
        kinds = ["mix", "mix", "make", "make", "assign", "scale", "draw"]
        if self.fails:
            kinds += ["refuse"]
        if depth == 0:
            kinds += ["make", "make", "drop", "drop", "full", "call"]
        if self.blocks and self.flags and depth < 2:
            kinds += ["if", "while"]
        kind = chance.choice(kinds)
        if kind == "drop":
            made = [name for name in self.live if name[0] == "t"]
            if made:
                name = chance.choice(made)
                self.live.remove(name)
                return Step("drop", stream, None, (Ref(name, slice(None)),))
            kind = "make"
        if kind in ("make", "draw", "full"):
            # What a block makes is of a round of it, so that later ones cannot use it: it is assigned, and dropped.
            name = f"t{self.count}"
            self.count += 1
            sources = (self.ref(SIZE), self.ref(SIZE)) if kind == "make" else ()
            what = chance.choice(sorted(MAKERS)) if kind == "make" else chance.randrange(100)
            if depth:
                return Step("redraw" if kind == "draw" else "remake", stream, self.ref(SIZE), sources, what)
            self.live.append(name)
            return Step(kind, stream, Ref(name, slice(None)), sources, what)
        if kind in ("if", "while"):
            flag = self.flags.pop()
            condition = self.ref(SIZE)
            inner = [self.step(stream, depth + 1) for _ in range(chance.randrange(1, 4))]
            return Step(kind, stream, Ref(flag, slice(None)), (condition,), chance.randrange(2, 4), inner)
        if kind in ("mix", "assign"):
            target = self.ref(length)
            others = [name for name in self.live if name != target.name]
            return Step(kind, stream, target, (self.ref(length, others),), chance.randrange(-5, 5))
        if kind in ("refuse", "call"):
            return Step(kind, stream, None, (self.ref(SIZE),))
        return Step("scale", stream, self.ref(SIZE))


class Machine:
    """Submits a program: its arrays on the device, by name, and what uses each, by stream."""

    def __init__(self, device: str, arrays: dict[str, aiodev.Array], streams: list[aiodev.Stream], seed: int) -> None:
        self.device, self.values, self.streams = device, dict(arrays), streams
        self.numbers: dict[str, aiodev.Array] = {}
        self.generator = aiodev.Generator(device).manual_seed(seed)
        self.seen: list[list[int]] = []
        self._writer: dict[str, int] = {}
        self._readers: dict[str, set[int]] = defaultdict(set)

    def view(self, ref: Ref) -> aiodev.Array:
        return self.values[ref.name][ref.view]

    def submit(self, steps: list[Step], graph: aiodev.Graph) -> None:
        for stream in self.streams[1:]:
            stream.wait_stream(self.streams[0])
        for step in steps:
            self._order(step)
            with self.streams[step.stream]:
                self._step(step, graph)
        for stream in self.streams[1:]:
            self.streams[0].wait_stream(stream)

    def _order(self, step: Step) -> None:
        """Have the stream wait for who has written what the step uses, and for who has read what it writes."""
        reads, writes = step.names()
        ahead = {self._writer[name] for name in reads | writes if name in self._writer}
        ahead |= {stream for name in writes for stream in self._readers[name]}
        for other in sorted(ahead - {step.stream}):
            self.streams[step.stream].wait_event(self.streams[other].record_event())
        for name in reads:
            self._readers[name].add(step.stream)
        for name in writes:
            self._writer[name] = step.stream
            self._readers[name] = set()

    def _step(self, step: Step, graph: aiodev.Graph) -> None:
        stream, sources = self.streams[step.stream], [self.view(ref) for ref in step.sources]
        target = step.target
        match step.kind:
            case "mix":
                assert target is not None
                mix[sources[0].size](step.what, sources[0], self.view(target))
            case "assign":
                assert target is not None
                stream.copy(self.view(target), sources[0])
            case "scale":
                assert target is not None
                scale[SIZE](self.numbers["factor"], self.view(target))
            case "make":
                assert target is not None
                self.values[target.name] = MAKERS[step.what][0](*sources)
            case "remake":
                assert target is not None
                made = MAKERS[step.what][0](*sources) if sources else aiodev.full(SIZE, step.what, np.int64)
                self.view(target)[...] = made
            case "full":
                assert target is not None
                self.values[target.name] = aiodev.full(SIZE, step.what, np.int64)
            case "draw":
                assert target is not None
                self.values[target.name] = draws.integers(0, 100, SIZE, generator=self.generator)
            case "redraw":
                assert target is not None
                self.view(target)[...] = draws.integers(0, 100, SIZE, generator=self.generator)
            case "drop":
                del self.values[step.sources[0].name]
            case "call":
                host = np.zeros(SIZE, np.int64)
                stream.copy(host, sources[0])
                stream.call(lambda: self.seen.append(host.tolist()))
            case "refuse":
                refuse[1](self.numbers["number"], sources[0])
            case "if" | "while":
                assert target is not None
                flag = self.values[target.name]
                bits[1](step.what, sources[0], flag)
                with graph.if_(flag) if step.kind == "if" else graph.while_(flag):
                    for inner in step.inner:
                        self._step(inner, graph)
                    if step.kind == "while":
                        count_down[1](flag)


class Model:
    """Runs a program in order."""

    def __init__(self, device: str, arrays: dict[str, Values], seed: int) -> None:
        self.values = {name: values.copy() for name, values in arrays.items()}
        self.numbers = {"factor": 2, "number": -1}
        self.generator = aiodev.Generator(device).manual_seed(seed)
        self.seen: list[list[int]] = []

    def view(self, ref: Ref) -> Values:
        return self.values[ref.name][ref.view]

    async def run(self, steps: list[Step]) -> None:
        """Run it; where it ends early, a replay has drawn all the same."""
        began = self.generator.get_offset()
        try:
            for step in steps:
                await self._step(step)
        except RefusedError:
            self.generator.set_offset(began)
            await self.give_up(steps)
            raise

    async def give_up(self, steps: list[Step]) -> None:
        """Draw what a replay draws that fails, or is withdrawn."""
        if any(one.kind == "redraw" for step in steps for one in step.all()):
            self.generator.set_offset(self.generator.get_offset() + SKIPPED)
        else:
            for step in steps:
                if step.kind == "draw":
                    await self.draw()

    async def draw(self) -> Values:
        return await draws.integers(0, 100, SIZE, generator=self.generator).numpy()

    async def _step(self, step: Step) -> None:
        sources = [self.view(ref) for ref in step.sources if ref.name in self.values]
        target = step.target
        match step.kind:
            case "mix":
                assert target is not None
                own, i = self.view(target), np.arange(len(sources[0]))
                own[:] = (3 * own + step.what * sources[0] + i) % MOST
            case "assign":
                assert target is not None
                self.view(target)[:] = sources[0].copy()
            case "scale":
                assert target is not None
                own = self.view(target)
                own[:] = (self.numbers["factor"] * own + 1) % MOST
            case "make":
                assert target is not None
                self.values[target.name] = MAKERS[step.what][1](*sources)
            case "remake":
                assert target is not None
                self.view(target)[:] = MAKERS[step.what][1](*sources) if sources else step.what
            case "full":
                assert target is not None
                self.values[target.name] = np.full(SIZE, step.what)
            case "draw":
                assert target is not None
                self.values[target.name] = await self.draw()
            case "redraw":
                assert target is not None
                self.view(target)[:] = await self.draw()
            case "call":
                self.seen.append(sources[0].tolist())
            case "refuse":
                if sources[0][0] % 11 == self.numbers["number"]:
                    raise RefusedError
            case "if":
                if sources[0][0] % step.what:
                    for inner in step.inner:
                        await self._step(inner)
            case "while":
                for _ in range(int(sources[0][0] % step.what)):
                    for inner in step.inner:
                        await self._step(inner)


class Run:
    """A program that was captured, and its model."""

    def __init__(self, device: str, chance: random.Random, streams: int, fails: bool = False) -> None:
        self.device, self.chance = device, chance
        executor = aiodev.get_backend(device).executor
        self.steps = Author(chance, streams, fails, executor.has_buffers).program()
        self.streams = [aiodev.Stream(device) for _ in range(streams)]
        self.hosts = {f"a{n}": np.array([chance.randrange(100) for _ in range(SIZE)]) for n in range(ARRAYS)}
        self.flags = {f"f{n}": np.zeros(1, np.int64) for n in range(6)}
        self.seed = chance.randrange(1 << 40)

    async def capture(self, pool: Any = None, inputs: Sequence[str] = ("a0", "a1")) -> None:
        known = self.hosts | self.flags
        self.arrays = {name: aiodev.asarray(host, device=self.device) for name, host in known.items()}
        await aiodev.synchronize(self.device)
        self.machine = Machine(self.device, self.arrays, self.streams, self.seed)
        self.model = Model(self.device, known, self.seed)
        async with aiodev.capture(self.streams[0], pool) as self.graph:
            self.machine.numbers = {name: self.graph.input(name, self.model.numbers[name]) for name in ("factor", "number")}
            for name in inputs:
                self.graph.input(name, self.arrays[name])
            self.machine.submit(self.steps, self.graph)
        self.replayed = False
        self.kept = [name for name in self.machine.values if name[0] == "t"]

    def change(self) -> None:
        """Change numbers and arrays that the graph has been given."""
        number = {"factor": self.chance.randrange(-3, 9), "number": self.chance.randrange(-1, 11)}
        self.model.numbers.update(number)
        self.graph.update(**number)
        name = self.chance.choice(["a0", "a1"])
        host = np.array([self.chance.randrange(100) for _ in range(SIZE)])
        self.machine.values[name] = self.arrays[name] = aiodev.asarray(host, device=self.device)
        self.model.values[name] = host
        self.graph.update(**{name: self.arrays[name]})

    async def check(self, stream: aiodev.Stream, is_whole: bool = True) -> None:
        """Compare all arrays, and what the graph has made, with the model's, whatever was withdrawn or has failed before."""
        names = [*self.hosts, *(self.kept if is_whole and self.replayed else ())]
        hosts = [np.empty(self.machine.values[name].shape, np.int64) for name in names]
        for name, host in zip(names, hosts, strict=True):
            stream.copy(host, self.machine.values[name])
        await stream.call(int)
        for name, host in zip(names, hosts, strict=True):
            assert host.tolist() == self.model.values[name].tolist(), name
        assert sorted(self.machine.seen) == sorted(self.model.seen)
        assert self.machine.generator.get_offset() == self.model.generator.get_offset()


@pytest.mark.parametrize("streams", [1, STREAMS])
@pytest.mark.parametrize("seed", range(examples(60)))
async def test_programs(device: str, seed: int, streams: int) -> None:
    """Replays do what the model does, whatever is updated, withdrawn or submitted beside them."""
    chance = random.Random(f"{seed} {streams}")
    run = Run(device, chance, streams)
    await run.capture()
    other = aiodev.Stream(device)
    own = chance.choice([run.streams[0], aiodev.Stream(device)])
    for _ in range(5):
        if chance.random() < 0.5:
            run.change()
        latch = Latch(own) if chance.random() < 0.5 else None
        own.wait_stream(aiodev.current_stream(device))
        for _ in range(chance.randrange(1, 4)):
            match chance.choice(["replay", "replay", "beside", "draw", "withdraw"]):
                case "replay":
                    run.graph.replay(own)
                    await run.model.run(run.steps)
                    run.replayed = True
                case "beside":
                    name, values = chance.choice(sorted(run.hosts)), run.model.values
                    other.wait_stream(own)
                    mix[SIZE, other](2, run.arrays["a2"], run.arrays[name])
                    own.wait_stream(other)
                    values[name][:] = (3 * values[name] + 2 * values["a2"] + np.arange(SIZE)) % MOST
                case "draw":
                    name = chance.choice(sorted(run.hosts))
                    other.wait_stream(own)
                    with other:
                        run.arrays[name].copy_from(draws.integers(0, 100, SIZE, generator=run.machine.generator))
                    own.wait_stream(other)
                    run.model.values[name][:] = await run.model.draw()
                case "withdraw" if latch is not None:
                    assert run.graph.replay(own).cancel()
                    await run.model.give_up(run.steps)
        if latch is not None:
            latch.release()
        await run.check(own)


@pytest.mark.parametrize("seed", range(examples(40)))
async def test_programs_that_fail(device: str, seed: int) -> None:
    """A replay ends with the first step that fails; the next one begins with what that has left."""
    chance = random.Random(f"failing {seed}")
    run = Run(device, chance, 1, fails=True)
    await run.capture()
    stream = run.streams[0]
    for _ in range(6):
        run.change()
        stream.wait_stream(aiodev.current_stream(device))
        done, is_whole = run.graph.replay(stream), True
        try:
            await run.model.run(run.steps)
        except RefusedError:
            is_whole = False
        if is_whole:
            await done
        else:
            with pytest.raises(aiodev.KernelError, match="refuse: ValueError: refused"):
                await done
        run.replayed = is_whole  # else what the rest was to make is what it was
        await run.check(stream)


@pytest.mark.parametrize("seed", range(examples(30)))
async def test_programs_that_share_a_pool(device: str, seed: int) -> None:
    """Two graphs with one pool, one replay after the other: what one has made stays until the other one is replayed."""
    chance = random.Random(f"shared {seed}")
    runs = [Run(device, chance, 1) for _ in range(2)]
    await runs[0].capture()
    await runs[1].capture(runs[0].graph.pool)
    stream = aiodev.Stream(device)
    for _ in range(8):
        which = chance.randrange(2)
        if chance.random() < 0.3:
            runs[which].change()
            stream.wait_stream(aiodev.current_stream(device))
        runs[which].graph.replay(stream)
        await runs[which].model.run(runs[which].steps)
        runs[which].replayed = True
        await runs[which].check(stream)
        runs[1 - which].replayed = False
        await runs[1 - which].check(stream)


@pytest.mark.parametrize("seed", range(examples(40)))
async def test_programs_that_are_saved(device: str, seed: int, tmp_path: Path) -> None:
    """A graph that was saved and loaded does to the arrays that it is given what the model does."""
    chance = random.Random(f"saved {seed}")
    run = Run(device, chance, STREAMS)
    run.steps = [step for step in run.steps if step.kind != "call"]
    await run.capture(inputs=list(run.hosts))
    await run.graph.save(tmp_path / "a.graph")
    if chance.random() < 0.5:
        await run.graph.replay(run.streams[0])  # nothing to the loaded one
    arrays = {name: aiodev.asarray(host, device=device) for name, host in run.hosts.items()}
    await aiodev.synchronize(device)
    run.graph = await aiodev.Graph.load(tmp_path / "a.graph", **arrays)
    run.machine.values.update(arrays)
    run.machine.generator = aiodev.default_generator(device).manual_seed(run.seed)
    stream = aiodev.Stream(device)
    for _ in range(4):
        if chance.random() < 0.5:
            run.change()
            stream.wait_stream(aiodev.current_stream(device))
        run.graph.replay(stream)
        await run.model.run(run.steps)
        await run.check(stream)


@pytest.mark.parametrize("seed", range(examples(20)))
async def test_profiles_of_programs(device: str, seed: int) -> None:
    """Every node is there as often as it has run; on a stream one after the other; and behind what its stream waited for."""
    chance = random.Random(f"profiled {seed}")
    run = Run(device, chance, STREAMS)
    await run.capture()
    await run.graph.replay(run.streams[0])
    await run.model.run(run.steps)
    run.replayed = True
    async with profiler.profile() as prof:
        await run.graph.replay(run.streams[0])
    await run.model.run(run.steps)
    await run.check(run.streams[0])
    nodes = [operation for operation in prof.operations if operation.node is not None]
    expected, always, depth = set[int](), set[int](), 0
    for line in str(run.graph).splitlines()[2:]:
        if line[0] == " ":  # a call
            continue
        number, _, name = line.split()[:3]
        if name == "end":
            depth -= 1
        elif name in ("while", "if"):
            depth += 1
        else:
            expected.add(int(number))
            always |= set() if depth else {int(number)}
    seen = [operation.node for operation in nodes if operation.node is not None]
    assert always <= set(seen) <= expected and all(seen.count(node) == 1 for node in always)
    assert all(operation.outcome == "done" for operation in nodes)
    by_stream: dict[int, list[profiler.Operation]] = defaultdict(list)
    for operation in nodes:
        by_stream[operation.stream_id].append(operation)
    for group in by_stream.values():
        for before, after in zip(group, group[1:], strict=False):
            assert (before.end_ns or 0) <= (after.start_ns or 0)
    own = [operation for operation in prof.operations if not operation.nested]
    ends = {(operation.stream_id, operation.value): operation.end_ns or 0 for operation in own}
    for operation in prof.operations:
        if operation.after in ends:
            assert operation.end_ns is not None and ends[operation.after] <= operation.end_ns

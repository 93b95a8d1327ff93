"""AIODEV_DEBUG=1: operations of one graph that use the same array unordered are told of, and no others."""

from __future__ import annotations

import itertools
import os
import random
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field

import pytest
from selection import some

#: Captures programs, each of which is the body of a capture, on several streams; what is logged goes by the lines of each.
HARNESS = """
import asyncio, sys
import aiodev
from aiodev import kernels
from aiodev.kernels import random
from aiodev.testing import SimulatedBackend

aiodev.register_backend("sim", SimulatedBackend)

@aiodev.kernel
def put(i, x):
    x[i] = 1.0

@aiodev.kernel(reads=("x",))  # there is no source to find it out from
def get(i, x, out):
    out[i] = x[i]

async def main():
    await aiodev.init(DEVICE)
    aiodev.set_device(DEVICE)
    x = aiodev.ones(8)
    for _ in range(3):  # the quick way through launches is not taken at once
        put[8](x)
        await get[8](x, x)
    for number, program in enumerate(PROGRAMS):
        first, second, third = (aiodev.Stream() for _ in range(3))
        x, y, z, *a = (aiodev.zeros(8) for _ in range(7))
        square = aiodev.ones((2, 2)) + kernels.eye(2)
        flag, generator = aiodev.ones(1, "int64"), aiodev.Generator()
        await aiodev.synchronize()
        names = dict(globals(), **locals())
        body = "".join(f"        {line}\\n" for line in program.splitlines())
        text = f"async def run():\\n    async with aiodev.capture(first) as graph:\\n{body}    return graph"
        exec(compile(text, f"<program {number}>", "exec"), names)
        graph = await names["run"]()
        if IS_REPLAYED:
            print(graph, file=sys.stderr)
            for _ in range(3):
                await graph.replay(first)

asyncio.run(main())
"""
#: What is logged: which program, whether it writes there, the line, and that of the other operation.
RACE = re.compile(
    r"is (written or read|read) on <aiodev\.Stream \d+ on \w+:0> at <program (\d+)>:(\d+), by .* of a graph, while .* of the "
    r"graph, on <aiodev\.Stream \d+ on \w+:0> at <program \d+>:(\d+), may still be using it, and nothing orders"
)
#: Line, line of the other operation, whether it writes.
Race = tuple[int, int, bool]


def races_of(device: str, programs: list[str], is_replayed: bool = False) -> tuple[list[Counter[Race]], str]:
    """What each program is told of, and all that is logged; lines are counted from 1."""
    code = f"DEVICE, PROGRAMS, IS_REPLAYED = {device!r}, {programs!r}, {is_replayed}\n{HARNESS}"
    environment = {**os.environ, "AIODEV_DEBUG": "1"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    races = [Counter[Race]() for _ in programs]
    for use, program, line, other in RACE.findall(found.stderr):
        races[int(program)][int(line) - 2, int(other) - 2, use != "read"] += 1
    assert sum(sum(one.values()) for one in races) == found.stderr.count("nothing orders"), found.stderr
    return races, found.stderr


#: Programs that order their uses.
ORDERED = {
    "reads side by side": """
second.wait_stream(first)
get[8, first](x, y)
get[8, second](x, z)
first.wait_stream(second)""",
    "by way of a third stream": """
third.wait_stream(first)
put[8, first](x)
third.wait_stream(first)
second.wait_stream(third)
put[8, second](x)
first.wait_stream(second)""",
    "by an event, and a completion": """
put[8, first](x)
second.wait_event(first.record_event())
done = put[8, second](x)
put[8, first](y)
third.wait(done)
put[8, third](x)
first.wait_stream(third)""",
    "a wait that is implied": """
put[8, first](x)
event = first.record_event()
second.wait_stream(first)
third.wait_stream(second)
third.wait_event(event)
put[8, third](x)
first.wait_stream(third)""",
    "an event of a block, which is reached with its end": """
second.wait_stream(first)
with first, graph.if_(flag):
    put[8](x)
    event = first.record_event()
    with graph.if_(flag):
        put[8](y)
second.wait_event(event)
get[8, second](y, z)
put[1, second](flag)
first.wait_stream(second)""",
    "draws, also in blocks, whose words the graph orders": """
second.wait_stream(first)
with first: u = random.random(8, generator=generator)
with second: v = random.random(8, generator=generator)
with first, graph.if_(flag): u[...] = random.random(8, generator=generator)
with second, graph.while_(flag):
    get[8](u, x)
    put[1](flag)
    v[...] = random.random(8, generator=generator)
with first: w = random.random(8, generator=generator)
get[8, first](x, y)
first.wait_stream(second)""",
    "memory of temporary arrays": """
second.wait_stream(first)
for stream in (first, second) * 3:
    with stream: kernels.sum(kernels.add(x, 1.0) * x)
first.wait_stream(second)""",
    "scratch memory of functions": """
second.wait_stream(first)
for stream in (first, second) * 2:
    with stream: s, m, c = kernels.sort(x), kernels.cumulative_sum(x), kernels.matmul(x.reshape(4, 2), y.reshape(2, 4))
    with stream: kernels.var(x), kernels.take(x, kernels.argsort(y)), kernels.linalg.inv(square) if DEVICE == "cpu" else 0
first.wait_stream(second)""",
    "calls of the host between waits": """
second.wait_stream(first)
put[8, second](x)
second.call(int)
first.call(int)
first.wait_stream(second)
first.call(int)
put[8, first](x)""",
    "work of another library, in an order of its own": """
second.wait_stream(first)
put[8, first](x)
x.record_stream(second)
put[8, second](y)
second.wait_stream(first)
x.record_stream(second, writes=False)
first.wait_stream(second)""",
}
#: Programs that do not, and what they are told of.
UNORDERED: dict[str, tuple[str, list[Race]]] = {
    "two branches that write": ("""
second.wait_stream(first)
put[8, first](x)
put[8, second](x)
first.wait_stream(second)""", [(4, 3, True)]),
    "a read beside a write of what the capture has made": ("""
second.wait_stream(first)
with second: made = x + 1.0
with first: more = made + 1.0
first.wait_stream(second)""", [(4, 3, False)]),
    "a write beside a read": ("""
second.wait_stream(first)
get[8, second](x, y)
put[8, first](x)
first.wait_stream(second)""", [(4, 3, True)]),
    "behind the point that is waited for": ("""
second.wait_stream(first)
event = first.record_event()
put[8, first](x)
second.wait_event(event)
put[8, second](x)
first.wait_stream(second)""", [(6, 4, True)]),
    "one of three": ("""
second.wait_stream(first)
third.wait_stream(first)
put[8, first](x)
put[8, second](y)
third.wait_stream(second)
get[8, third](x, z)
put[8, third](y)
first.wait_stream(third)""", [(7, 4, False)]),
    "two others": ("""
second.wait_stream(first)
third.wait_stream(first)
get[8, first](x, y)
get[8, second](x, z)
put[8, third](x)
first.wait_stream(second)
first.wait_stream(third)""", [(6, 4, True), (6, 5, True)]),
    "a block's condition": ("""
second.wait_stream(first)
with first, graph.if_(flag):
    put[8](x)
put[1, second](flag)
first.wait_stream(second)""", [(5, 3, True)]),
    "a nested block": ("""
second.wait_stream(first)
put[8, second](x)
with first, graph.if_(flag):
    with graph.if_(flag):
        get[8](x, y)
first.wait_stream(second)""", [(6, 3, False)]),
    "fills, copies and the functions of the library": ("""
second.wait_stream(first)
with first: x[...] = 2.0
second.copy(y, x)
with first: z[...] = y
with second: kernels.sum(z)
first.wait_stream(second)""", [(4, 3, False), (5, 4, False), (6, 5, False)]),
    "a line that submits again and again": ("""
second.wait_stream(first)
for n in range(100): put[8, (first, second)[n % 2]](x)
first.wait_stream(second)""", [(3, 3, True)] * 2),
    "behind work of another library": ("""
second.wait_stream(first)
get[8, second](y, z)
x.record_stream(second)
put[8, first](x)
first.wait_stream(second)""", [(5, 3, True)]),
}  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_fixed_programs(device: str) -> None:
    """Whatever orders uses is known, and whatever is unordered is told of."""
    known = {name: (program, list[Race]()) for name, program in ORDERED.items()} | UNORDERED
    found, _ = races_of(device, [program.removeprefix("\n") for program, _ in known.values()])
    for name, (_, expected), races in zip(known, known.values(), found, strict=True):
        assert races == Counter((line - 1, other - 1, writes) for line, other, writes in expected), name


def test_a_race_is_told_once_with_lines_streams_and_operations() -> None:
    """When it is captured, and not by its replays."""
    program = "second.wait_stream(first)\nput[8, first](x)\nput[8, first](y)\nput[8, second](x)\nfirst.wait_stream(second)"
    (races,), text = races_of("cpu", [program], is_replayed=True)
    assert races == {(4, 2, True): 1}
    assert re.search(r"cpu:0: memory of 64 bytes at 0x\w+, allocated at <string>:\d+ is written or read on", text)
    reported = re.search(r"by operation (\d) \(put\) of a graph, while operation (\d) \(put\) of the graph,", text)
    rows = [re.search(rf"^(\d) .*<program 0>:{line + 2}$", text, re.MULTILINE) for line in (4, 2)]
    assert reported is not None and reported.groups() == tuple(row and row[1] for row in rows)
    assert "let one stream wait for the other (Stream.wait_stream)" in text


# Programs at random


@dataclass
class Use:
    """An operation, as the model knows it."""

    line: int
    stream: int
    number: int
    clock: tuple[int, ...]
    reads: frozenset[str]
    writes: frozenset[str]


@dataclass
class Author:
    """Writes a program at random, and says by vector clocks which of its lines race."""

    chance: random.Random
    lines: list[str] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    races: Counter[Race] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.arrays = ["x", "y", "z", "a[0]"]
        self.clocks = [[0] * 3 for _ in range(3)]  # of each stream, how many operations of each its next one follows
        self.events: dict[str, tuple[int, ...]] = {}
        self.drawn_behind: tuple[int, ...] | None = None  # the end of the last block with draws
        self.names = itertools.count()

    def program(self) -> str:
        for stream in ("second", "third"):
            self.lines.append(f"{stream}.wait_stream(first)")
        for _ in range(self.chance.randrange(4, 30)):
            self.step()
        self.lines += ["third.wait_stream(second)", "first.wait_stream(third)"]
        for buffer in {name for use in self.uses for name in use.reads | use.writes}:
            self.find_races(buffer)
        return "\n".join(self.lines)

    def find_races(self, buffer: str) -> None:
        """All pairs that nothing orders; of each other stream the last is told of."""
        uses = [use for use in self.uses if buffer in use.reads | use.writes]
        for place, one in enumerate(uses):
            last: dict[int, Use] = {}
            for other in uses[:place]:
                is_ordered = one.stream == other.stream or one.clock[other.stream] >= other.number
                if not is_ordered and (buffer in one.writes or buffer in other.writes):
                    last[other.stream] = other
            for other in last.values():
                self.races[one.line, other.line, buffer in one.writes] += 1

    def join(self, stream: int, clock: tuple[int, ...]) -> None:
        self.clocks[stream] = [max(pair) for pair in zip(self.clocks[stream], clock, strict=True)]

    def use(self, stream: int, text: str, reads: list[str], writes: list[str], indent: int) -> None:
        self.lines.append("    " * indent + text)
        own = self.clocks[stream]
        own[stream] += 1
        self.uses.append(Use(len(self.lines), stream, own[stream], tuple(own), frozenset(reads), frozenset(writes)))

    def step(self) -> None:
        chance, stream = self.chance, self.chance.randrange(3)
        name, other = STREAMS[stream], chance.choice([n for n in range(3) if n != stream])
        match chance.choice(["operation"] * 6 + ["wait"] * 4 + ["event", "event", "record", "record", "block", "drop", "call"]):
            case "operation":
                self.operation(stream, 0)
            case "wait":
                self.lines.append(f"{name}.wait_stream({STREAMS[other]})")
                self.join(stream, tuple(self.clocks[other]))
            case "event" if self.events:
                event = chance.choice(list(self.events))
                self.lines.append(f"{name}.wait_event({event})")
                self.join(stream, self.events[event])
            case "record":
                self.record(stream, 0)
            case "call":
                self.lines.append(f"{name}.call(int)")
            case "drop" if made := [array for array in self.arrays if array[0] == "t"]:
                self.arrays.remove(array := chance.choice(made))
                self.lines.append(f"del {array}")
            case "block":
                self.block(stream)

    def record(self, stream: int, indent: int) -> str:
        event = f"e{next(self.names)}"
        self.lines.append("    " * indent + f"{event} = {STREAMS[stream]}.record_event()")
        self.events[event] = tuple(self.clocks[stream])
        return event

    def operation(self, stream: int, indent: int) -> None:
        chance, name = self.chance, STREAMS[stream]
        one, other = chance.sample(self.arrays, 2)
        kind = chance.choice(["put", "get", "copy", "fill", "assign", *([] if indent else ["add", "zeros", "draw"])])
        made = f"t{next(self.names)}"
        match kind:
            case "put":
                self.use(stream, f"put[8, {name}]({one})", [], [one], indent)
            case "get":
                self.use(stream, f"get[8, {name}]({one}, {other})", [one], [other], indent)
            case "copy":
                self.use(stream, f"{name}.copy({other}[:4], {one}[4:])", [one], [other], indent)
            case "fill":
                self.use(stream, f"with {name}: {one}[...] = 2.0", [], [one], indent)
            case "assign":
                self.use(stream, f"with {name}: {one}[::2] = {other}[1::2]", [other], [one], indent)
            case "add":
                self.use(stream, f"with {name}: {made} = kernels.add({one}, {other})", [one, other], [made], 0)
            case "zeros":
                self.use(stream, f"with {name}: {made} = aiodev.zeros(8)", [], [made], 0)
            case "draw":
                if self.drawn_behind is not None:
                    self.join(stream, self.drawn_behind)
                self.use(stream, f"with {name}: {made} = random.random(8, generator=generator)", [], [made], 0)
        if kind in ("add", "zeros", "draw"):
            self.arrays.append(made)

    def block(self, stream: int) -> None:
        """A block, perhaps with another one in it. Its points are reached with its end; its draws are ordered by the graph."""
        name, chance = STREAMS[stream], self.chance
        conditions = ["flag", self.made_condition() if chance.random() < 0.4 else "flag"]
        draws = chance.random() < 0.4
        if draws and self.drawn_behind is not None:
            self.join(stream, self.drawn_behind)  # ahead of the block
        events, depth = list[str](), chance.randrange(1, 3)
        for indent in range(depth):
            kind, condition = chance.choice(["while_", "if_"]), chance.choice(conditions)
            self.use(stream, f"with {name}, graph.{kind}({condition}):", [condition], [], indent)
            if kind == "while_":
                self.use(stream, f"put[1, {name}]({condition})", [], [condition], indent + 1)
            for _ in range(chance.randrange(1, 4)):
                self.operation(stream, indent + 1)
                if chance.random() < 0.3:
                    events.append(self.record(stream, indent + 1))
        if draws:
            target = chance.choice(self.arrays)
            text = f"with {name}: {target}[...] = random.random(8, generator=generator)"
            self.use(stream, text, [], [target], depth)
        clock = tuple(self.clocks[stream])
        self.events.update(dict.fromkeys(events, clock))
        if draws:
            self.drawn_behind = clock
        if chance.random() < 0.2:
            writer = chance.randrange(3)
            self.use(writer, f"put[1, {STREAMS[writer]}](flag)", [], ["flag"], 0)

    def made_condition(self) -> str:
        """An array of the capture's own, which any stream has made."""
        made, maker = f"c{next(self.names)}", self.chance.randrange(3)
        self.use(maker, f'with {STREAMS[maker]}: {made} = aiodev.ones(1, "bool")', [], [made], 0)
        return made


STREAMS = ("first", "second", "third")


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("seed", some(range(20)))
def test_random_programs(device: str, seed: int) -> None:
    """What is told of are the races that vector clocks know, in either direction: every one, and nothing else."""
    chance = random.Random(seed)
    authors = [Author(chance) for _ in range(40)]
    programs = [author.program() for author in authors]
    found, _ = races_of(device, programs)
    for author, program, races in zip(authors, programs, found, strict=True):
        assert races == author.races, program

"""Blocks of graphs: the kernels that the driver compiles, its structures for blocks, and which branches are blocks."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from aiodev._backends.cuda.executor.ptx import CONDITION, SIGNAL, Source
from aiodev._backends.cuda.executor.steps import Steps
from aiodev._backends.cuda.structs import BLOCKS_DEEP as DEEP, OP_BLOCK, OP_COPY, OP_END, Queue
from aiodev._core.backend.interface import Command
from aiodev._native.fields import offset_of

WHOLE = (1 << 64) - 1


def interpreted(source: Source, parameters: dict[str, int], memory: dict[int, int]) -> list[int]:
    """What a kernel's text calls ``cudaGraphSetConditional`` with, if it does; and ``memory`` is changed as it says."""
    body = source.text.split("{", 1)[1].rsplit("}", 1)[0]
    lines = [line.strip().rstrip(";") for line in body.splitlines() if line.strip() and not line.strip().startswith(".")]
    labels = {line.rstrip(":"): number for number, line in enumerate(lines) if line.endswith(":")}
    values: dict[str, int] = {}
    passed: dict[str, int] = {}

    def value(word: str) -> int:
        return values[word] if word.startswith("%") else int(word)

    at = 0
    while True:
        words = lines[at].replace(",", " ").replace("(", " ").replace(")", " ").split()
        at += 1
        if words[0].startswith("@"):
            if values[words.pop(0)[1:]]:
                at = labels[words[1]]
            continue
        match words[0].split("."):
            case ["mov", *_]:
                values[words[1]] = value(words[2])
            case ["ld", "param", _]:
                values[words[1]] = parameters[words[2].strip("[]")]
            case ["ld", "global", _] | ["ld", "volatile", "global", _]:
                values[words[1]] = memory[value(words[2].strip("[]"))]
            case ["setp", "eq", _]:
                values[words[1]] = int(value(words[2]) == value(words[3]))
            case ["setp", "ne", _]:
                values[words[1]] = int(value(words[2]) != value(words[3]))
            case ["setp", "ge", _]:
                values[words[1]] = int(value(words[2]) >= value(words[3]))
            case ["add", _]:
                values[words[1]] = value(words[2]) + value(words[3])
            case ["st", "volatile", "global", _]:
                assert lines[at - 2] == "membar.sys"  # else the host may see it ahead of what it stands for
                memory[value(words[1].strip("[]"))] = value(words[2])
            case ["and", _]:
                values[words[1]] = value(words[2]) & value(words[3])
            case ["selp", _]:
                values[words[1]] = value(words[2] if values[words[4]] else words[3])
            case ["st", "param", _]:
                passed[words[1].strip("[]")] = value(words[2])
            case ["call", "uni"]:
                assert words[1] == "cudaGraphSetConditional"
                return [passed[word] for word in words[2:]]
            case ["ret"]:
                return []
            case _:
                assert words[0].endswith(":") or words == ["membar.sys"], lines[at - 1]


@pytest.mark.parametrize("record", [0, 64])
@pytest.mark.parametrize("word", [0, 128])
def test_conditions_are_what_words_say(record: int, word: int) -> None:
    """The kernel sets 1 if its bits of a word are not all zero, and nothing has failed; each where it is given one."""
    for failed, content, mask in itertools.product((0, 7 << 40), (0, 1, 1 << 63, 0xFF00), (0xFF, 0xFF00, WHOLE, 1 << 63)):
        parameters = {"record": record, "word": word, "mask": mask, "handle": 1 << 40}
        expected = not (record and failed) and (not word or content & mask != 0)
        assert interpreted(CONDITION, parameters, {64: failed, 128: content}) == [1 << 40, int(expected)]


@pytest.mark.parametrize("record", [0, 64])
def test_signals_complete_the_next_position(record: int) -> None:
    """That of the queue whose address is in the cell, up to the bound; none behind a failure, where there can be one."""
    assert offset_of(Queue, "completed") == 0
    for failed, counter, bound in itertools.product((0, 7 << 40), range(4), (1, 3)):
        memory = {64: failed, 128: 256, 256: counter}
        assert interpreted(SIGNAL, {"record": record, "cell": 128, "bound": bound}, memory) == []
        is_signalled = counter < bound and not (record and failed)
        assert memory == {64: failed, 128: 256, 256: counter + is_signalled}


@pytest.mark.parametrize("source", [CONDITION, SIGNAL], ids=lambda source: source.name)
@pytest.mark.parametrize("architecture", ["sm_75", "sm_90", "sm_120"])
def test_the_kernels_are_assembled(architecture: str, source: Source, tmp_path: Path) -> None:
    """NVIDIA's assembler takes them, which is a part of the driver, and knows the function that one calls."""
    places = [Path(folder) / "nvidia" / "cuda_nvcc" / "bin" / "ptxas" for folder in sys.path]
    assembler = shutil.which("ptxas") or next((str(place) for place in places if place.is_file()), None)
    if assembler is None:
        pytest.skip("no ptxas is installed")
    (tmp_path / "kernel.ptx").write_text(source.text)
    command = [assembler, f"-arch={architecture}", "kernel.ptx", "-o", "kernel.cubin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert source.name.encode() in (tmp_path / "kernel.cubin").read_bytes()


def test_a_conditional_node_s_parameters() -> None:
    """The words that are passed to the driver are where its own bindings have them."""
    bindings = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings are not installed")
    node = bindings.CUgraphNodeParams()
    node.type = bindings.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    given = bindings.CUDA_CONDITIONAL_NODE_PARAMS()
    given.handle = bindings.CUgraphConditionalHandle(0x1234)
    given.type = bindings.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_WHILE
    given.size, given.ctx = 1, bindings.CUcontext(0x5678)
    node.conditional = given
    words = struct.unpack("<32q", ctypes.string_at(node.getPtr(), 256))
    assert words == (13, 0, 0x1234, 1 | 1 << 32, 0, 0x5678, *[0] * 26)
    assert bindings.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES == 1


def branch(target: int, mask: int = 0) -> Command:
    return Command("branch", 0, target, struct.pack("<qQ", 4096 if mask else 0, mask))


def laid(commands: list[Command]) -> tuple[Steps, list[tuple[int, int]]]:
    """The steps of commands, copies guarded where they say so; and of each its operation, and its kind or where it begins."""
    steps = Steps(commands)
    for number, command in enumerate(commands):
        if command.kind == "branch":
            steps.branch(number, 0)
        else:
            steps.add(OP_COPY, 0, 8, command.arguments, 0, command.entry == 1)
    content, at, found = steps.at(0), 0, []
    while at < len(content):
        operation, entry, _, _, nbytes, *_ = struct.unpack_from("<8q", content, at)
        found.append((operation, entry))
        at += 64 + 2 * nbytes
    return steps, found


def test_branches_become_blocks() -> None:
    """Loops, what is passed over, and what is guarded from failures, within each other; nothing for what is empty."""
    copy, guarded = Command("copy", 0, 8, bytes(16)), Command("copy", 1, 8, bytes(16))
    steps, found = laid([branch(5, WHOLE), branch(4, 1), copy, branch(4), branch(0), guarded, guarded, branch(9, 1), branch(9)])
    nested = [OP_BLOCK, OP_BLOCK, OP_COPY, OP_END, OP_END]
    assert [operation for operation, _ in found] == [*nested, OP_BLOCK, OP_COPY, OP_COPY, OP_END]
    begins = [0, 96, 64 * 5 + 32 * 3]
    assert [entry for _, entry in found] == [1, 0, 0, begins[1], begins[0], 0, 0, 0, begins[2]]
    assert (steps.blocks, steps.depth, steps.count, len(steps.places)) == (3, 2, 9, 9)


@pytest.mark.parametrize(
    "commands",
    [
        [branch(0)],
        [branch(3, 1), branch(2)],
        [branch(2, 1), branch(5)],
        [branch(1, 1), branch(0)],
        [branch(9, 1), branch(0)],
        [branch(3, 1), branch(4, 1), branch(3), branch(4)],
        [branch(2 * DEEP - k, 1) for k in range(DEEP)] + [branch(DEEP + k) for k in range(1, DEEP + 1)],
    ],
)
def test_branches_that_are_no_blocks(commands: list[Command]) -> None:
    """They are refused, by their number."""
    with pytest.raises(NotImplementedError, match="^[0-9]+ branch: "):
        laid(commands)

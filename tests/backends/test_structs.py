"""Structs in native memory: where fields lie, what native code makes of them, and what Python sees."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from interpreted import World

from aiodev._backends.cpu import structs as cpu
from aiodev._backends.cpu.structs import OP_KERNEL, Device, Helper, KernelRecord, Queue, Record
from aiodev._backends.cuda import structs as cuda
from aiodev._backends.executor import structs
from aiodev._backends.executor.structs import FAULT_SLOTS, KIND_KERNEL, NEVER, Waker
from aiodev._core.backend.interface import COMPLETED, FAULTS, SUBMITTED
from aiodev._native.compile import exported, inner, int64
from aiodev._native.emit import emit
from aiodev._native.fields import LINE, WORD, Atomic, Cell, Struct, embedded, offset_of, sizeof, word, words
from aiodev._native.intrinsics import (
    compare_exchange,
    exchange,
    fetch_add,
    get,
    load,
    load_fence,
    on_stack,
    put,
    store,
    store_fence,
)
from aiodev._native.kinds import TranslationError
from aiodev._native.native_code import NativeCode

# Declarations


class Point(Struct):
    """Two words."""

    x: int
    y: int


class Node(Struct, alignment=64):
    """Fields of each kind."""

    number: int
    shared: Atomic[int]
    points: Point = embedded(Point, 2)
    own: Cell[int] = word(line=True)
    late: int = word(line=1, slot=3)
    behind: int
    next: Node | None = word(line=0, slot=1)
    others: Atomic[Node | None] = words(2, line=2)
    corner: Point


class Derived(Node):
    """What goes on with a line of its base's, and behind it."""

    first: int = word(line=1)
    second: int
    third: int
    tail: int = word(line=True)
    rest: Cell[int] = words(0)


def offsets(struct: type[Struct]) -> dict[str, int]:
    return {name: offset_of(struct, name) for name in struct.fields}


def test_fields_have_offsets() -> None:
    """One behind the other; on a new line; or on a line that is named, in the first word that is free from the slot on."""
    assert list(offsets(Node)) == ["number", "shared", "points", "own", "late", "behind", "next", "others", "corner"]
    assert list(offsets(Node).values()) == [0, 8, 16, 64, 88, 96, 48, 128, 144] and sizeof(Node) == 192
    assert offsets(Point) == {"x": 0, "y": 8} and sizeof(Point) == 16


def test_a_derived_struct_goes_on() -> None:
    """Its base's fields stay where they are; its own fill the lines that it names, around them. It is aligned like its base."""
    own = {"first": 72, "second": 80, "third": 104, "tail": 192, "rest": 200}
    assert offsets(Derived) == offsets(Node) | own and sizeof(Derived) == 256


STRUCTS = [
    each
    for module in (structs, cpu, cuda)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Struct) and each.__module__ == module.__name__
]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda each: f"{each.__module__.split('.')[2]}-{each.__name__}")
def test_no_word_is_of_two_fields(struct: type[Struct]) -> None:
    """Fields are disjoint, in the struct, and of kinds that exist."""
    taken = [range(field.offset, field.offset + field.nbytes) for field in struct.fields.values()]
    ordered = sorted((each for each in taken if len(each)), key=lambda each: each.start)
    assert all(before.stop <= after.start for before, after in itertools.pairwise(ordered))
    assert all(each.stop <= sizeof(struct) for each in taken)
    for field in struct.fields.values():
        assert field.offset % WORD == 0 and (field.kind is None or field.kind)


@pytest.mark.parametrize("queue", [structs.Queue, cpu.Queue, cuda.Queue])
def test_counters_are_where_everybody_reads_them(queue: type[Struct]) -> None:
    """The first words of a queue are the contract of all backends."""
    for name, index in (("completed", COMPLETED), ("faults", FAULTS), ("submitted", SUBMITTED)):
        assert offset_of(queue, name) == WORD * index


@pytest.mark.parametrize(
    ("struct", "lines"),
    [
        (cpu.Queue, [("completed", "begun"), ("submitted", "chunk", "submit_lock"), ("pending",), ("cursor", "forgiven")]),
        (cpu.Device, [("lock",), ("pending", "least"), ("first", "heap"), ("clock",), ("gone",)]),
        (cuda.Queue, [("completed",), ("submitted",), ("shadow",), ("lock", "issued"), ("status", "failed_value")]),
        (cuda.Device, [("lost",), ("sleep",), ("semaphore",), ("staging",)]),
    ],
    ids=lambda each: each.__module__.split(".")[2] + each.__name__ if isinstance(each, type) else "",
)
def test_who_writes_has_lines_of_its_own(struct: type[Struct], lines: list[tuple[str, ...]]) -> None:
    """What is written together shares a line, which nothing else of this list is on."""
    found = [{offset_of(struct, name) // LINE for name in names} for names in lines]
    assert all(len(each) == 1 for each in found)
    assert len(set.union(*found)) == len(lines)


# What Python sees


def view(kind: type[Node] = Node) -> tuple[Any, Any]:
    """A struct in memory of its own, and its words, for which that is kept."""
    memory = (ctypes.c_int64 * (2 * sizeof(kind) // WORD))()
    return kind(ctypes.addressof(memory)), memory


def test_a_view_reads_and_writes_memory() -> None:
    """Words, addresses of structs, cells and atomics, and what lies in the struct."""
    node, memory = view()
    node.number, node.shared.value, node.own.value = -5, 6, 7
    node.next = node.corner = node
    node.points[1].y = 8
    node.others[1].store(node)
    assert (memory[0], memory[1], memory[8], memory[5]) == (-5, 6, 7, 8)
    assert memory[6] == memory[18] == memory[17] == node.address
    assert (node.number, node.shared.load(), node.next.number, node.others[1].load().own.value) == (-5, 6, -5, 7)
    assert isinstance(node.corner, Point) and node.corner == node and node.corner.y == 6
    assert node[1].address == node.address + sizeof(Node)


def test_no_address_is_none() -> None:
    """Where a field may have none, and only there."""
    node, memory = view()
    assert node.next is None and node.others[0].load() is None and node.corner.address == 0
    node.next = node
    node.next = None
    assert memory[6] == 0


@pytest.mark.parametrize("name", ["numbr", "nxt", "address_"])
def test_a_misspelt_field_is_an_error_in_python(name: str) -> None:
    """To be read and to be written."""
    node, _ = view(Derived)
    with pytest.raises(AttributeError):
        getattr(node, name)
    with pytest.raises(AttributeError):
        setattr(node, name, 1)


@pytest.mark.parametrize("name", ["points", "shared", "own", "others"])
def test_a_place_is_not_assigned(name: str) -> None:
    """What lies in the struct has no address that could be another one."""
    node, _ = view()
    with pytest.raises(AttributeError, match="lies in the struct"):
        setattr(node, name, 0)


def test_python_has_no_atomic_changes() -> None:
    """It reads and writes whole words; to change one by what it was is for native code."""
    node, _ = view()
    for method, arguments in (("fetch_add", (1,)), ("exchange", (1,)), ("compare_exchange", (0, 1))):
        with pytest.raises(TypeError, match="native code alone"):
            getattr(node.shared, method)(*arguments)


# What native code makes of them: the same as of words at numbered offsets


class InStructs:
    """Functions as they are written."""

    @exported(int64(int64))
    def advance(queue: Queue) -> int:
        queue.target.value = queue.completed.value + 1
        queue.spent += 20
        return queue.submitted.load()

    @exported(int64(int64, int64))
    def append(queue: Queue, record: Record) -> int:
        launch = KernelRecord(record)
        launch.mark = OP_KERNEL
        launch.entry.uses += 1
        queue.submitted.store(queue.submitted.value + 1)
        return launch.size + launch.arguments[2].value

    @exported(int64(int64, int64))
    def record_fault(queue: Queue, value: int) -> int:
        fault = queue.ring[queue.faults.value % FAULT_SLOTS]
        fault.first, fault.kind = value, KIND_KERNEL
        fault.last.store(0)
        return fault[1].first

    @exported(int64(int64, int64))
    def charge(device: Device, priority: int) -> int:
        queue = device.first[priority].load()
        if queue is None or queue.place == 0:
            return 0
        place = device.heap[priority].value[queue.place]
        place.time += device.clock[priority].load()
        return device.gone[priority].fetch_add(1)

    @exported(int64(int64))
    def wake(waker: Waker) -> int:
        while True:
            node = waker.fired.load()
            if node is None:
                return waker.pending.exchange(0)
            if waker.fired.compare_exchange(node, node.fired_next):
                node.target.store_fence(NEVER)
                return node.queue.completed.load_fence()

    @exported(int64(int64))
    def borrow(helper: Helper) -> int:
        here = Helper(on_stack(sizeof(Helper)))
        here.until = helper.until
        here.longest = helper.longest
        here.polled.value = helper.descriptor
        return here.until + here.longest + here.polled.value


class InWords:
    """The same by hand."""

    @exported(int64(int64))
    def advance(queue: int) -> int:
        put(queue + 16, get(queue) + 1)
        put(queue + 304, get(queue + 304) + 20)
        return load(queue + 64)

    @exported(int64(int64, int64))
    def append(queue: int, record: int) -> int:
        put(record, 1)
        entry = get(record + 16)
        put(entry + 16, get(entry + 16) + 1)
        store(queue + 64, get(queue + 64) + 1)
        return get(record + 24) + get(record + 40 + 16)

    @exported(int64(int64, int64))
    def record_fault(queue: int, value: int) -> int:
        fault = queue + 384 + 64 * (get(queue + 8) % 32)
        put(fault, value)
        put(fault + 16, 1)
        store(fault + 8, 0)
        return get(fault + 64)

    @exported(int64(int64, int64))
    def charge(device: int, priority: int) -> int:
        queue = load(device + 128 + 8 * priority)
        if queue == 0 or get(queue + 192) == 0:
            return 0
        place = get(device + 152 + 8 * priority) + 24 * get(queue + 192)
        put(place, get(place) + load(device + 192 + 8 * priority))
        return fetch_add(device + 256 + 8 * priority, 1)

    @exported(int64(int64))
    def wake(waker: int) -> int:
        while True:
            node = load(waker + 16)
            if node == 0:
                return exchange(waker + 8, 0)
            if compare_exchange(waker + 16, node, get(node + 32)):
                store_fence(node, (1 << 63) - 1)
                return load_fence(get(node + 24))

    @exported(int64(int64))
    def borrow(helper: int) -> int:
        here = on_stack(72)
        put(here, get(helper))
        put(here + 32, get(helper + 32))
        put(here + 24, get(helper + 8))
        return get(here) + get(here + 32) + get(here + 24)


@pytest.mark.parametrize("name", ["advance", "append", "record_fault", "charge", "wake", "borrow"])
def test_fields_cost_nothing(name: str) -> None:
    """The object files are the same, byte for byte."""
    assert emit("test", [getattr(InStructs, name)]) == emit("test", [getattr(InWords, name)])


@exported(int64(int64))
def _walk(node: Derived) -> int:
    total = node.points[1].y * 1000 + node.own.value
    node.shared.store(total)
    node.tail = node.rest[1].value
    node.others[0].store_fence(node)
    node.points[0].x = node.shared.fetch_add(5) if node.shared.compare_exchange(total, total + 1) else 0
    other = node.next
    while other is not None and other != node:
        total += other.number
        other = other.next
    return total


def test_native_code_and_python_see_the_same() -> None:
    """What one writes the other reads, and a function that Python runs leaves what it leaves when it is compiled."""
    function, world = NativeCode(emit("test", [_walk])).function(_walk), World()
    (ours, _ours), (other, _other), theirs = view(Derived), view(), Derived(0x1000, world)
    for node, second in ((ours, other), (theirs, Node(0x2000, world))):
        node.points[1].y, node.own.value, node.rest[1].value, node.next = 3, 4, 9, second
        second.number, second.next = 100, node
    assert function(ours.address) == _walk.py_func(theirs) == 3104
    for name in ("number", "late", "tail"):
        assert getattr(ours, name) == getattr(theirs, name)
    for node in (ours, theirs):
        assert (node.shared.load(), node.points.x, node.tail) == (3010, 3005, 9)
    assert ours.others[0].load() == ours and theirs.others[0].load() == theirs


@inner
def _expects(node: Node, number: int) -> Point:
    return node.points


def _misspelt(node: Node) -> int:
    return node.numbr


def _misspelt_target(node: Node) -> int:
    node.numbr = 1
    return 0


def _misspelt_method(node: Node) -> int:
    return node.shared.lod()


def _plain_method(node: Node) -> int:
    return node.own.load()


def _other_struct(node: Node) -> int:
    return _expects(node.points, 1).x


def _word_for_struct(node: Node) -> int:
    return _expects(node.number, 1).x


def _struct_for_word(node: Node) -> int:
    return _expects(node, node).x


def _without_a_load(node: Node) -> int:
    return node.shared + 1


def _atomic_as_truth(node: Node) -> int:
    return 1 if node.shared else 0


def _atomic_compared(node: Node) -> int:
    return 1 if node.shared == 1 else 0


def _ordered(node: Node) -> int:
    return 1 if node < node.next else 0


def _place_assigned(node: Node) -> int:
    node.points = node.points
    return 0


def _struct_returned(node: Node) -> int:
    return node.next


def _another_kind(node: Node) -> int:
    node = node.points
    return 0


def _another_field(node: Node) -> int:
    node.next = node.points
    return 0


def _unknown_struct(node: int) -> int:
    return node.number


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (_misspelt, "node.numbr: Node has no such field"),
        (_misspelt_target, "node.numbr: Node has no such field"),
        (_misspelt_method, "a call of node.shared.lod"),
        (_plain_method, "a call of node.own.load"),
        (_other_struct, "Point where node of _expects is Node"),
        (_word_for_struct, "int where node of _expects is Node"),
        (_struct_for_word, "Node where number of _expects is int"),
        (_without_a_load, r"Atomic\[int\] where an operand of node.shared \+ 1 is int"),
        (_atomic_as_truth, "the truth of node.shared"),
        (_atomic_compared, "node.shared == 1"),
        (_ordered, "node < node.next"),
        (_place_assigned, "which lies in the struct"),
        (_struct_returned, "Node where the result is int"),
        (_another_kind, "Point where node is Node"),
        (_another_field, "Point where node.next is Node"),
        (_unknown_struct, "node.number, of which no struct is known"),
    ],
)
def test_what_a_struct_has_not_is_refused(body: Callable[..., int], message: str) -> None:
    """By its line, when the function is translated: names, kinds, and atomics without a word on how they are read."""
    with pytest.raises(TranslationError, match=rf"test_structs.py:\d+: .*{message}"):
        emit("test", [exported(int64(int64))(body)])

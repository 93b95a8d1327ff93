"""Backward passes of graphs that were seen before: what they submit is found out once.

**Problem.** Training goes backward through graphs of one structure, step after step. The engine finds out each time which node
is ready, which gradient functions to call, what these launch, and over what. For small arrays that takes several times as long
as to submit it.

**How.** As for operations (:mod:`aiodev._kernel.operation`). What a pass submits follows from the structure of its graph: the
derivatives of the nodes, their edges, the forms of operands and results. Only addresses are another thing each time, and are
those of what nodes keep, of the gradient to begin with, and of memory that the pass makes. When a root is seen for the second
time, what the engine submits is noted. From the third time on the graph is compared with the one of the note; where it is the
same, memory is allocated, addresses are put into the blocks, and all is submitted in the same order.

**Invariants.**

1.  What is submitted is to the bit what the engine would submit. Whoever is not sure of that leaves it to the engine: where
    there is a hook, a function of a user, a second stream, a capture, an anomaly to be found, or something else was submitted
    than launches, fills and copies.
2.  An address that was noted is that of something kept, of the given gradient, of memory that the pass has made, or of a
    constant, which is one of an operation or what the host has written meanwhile; else nothing is remembered. Things kept in
    one buffer are in one buffer, at the same distances, in all graphs that are taken for the same: else two that were one thing
    when the note was taken could be confused.
3.  Numbers that nodes keep are compared by value.
4.  Memory in between is one allocation, in which that of a result serves again behind its last use. What leaves get is memory
    of its own.
5.  Until the first submission nothing has changed, so an error up to there leaves the pass to the engine, which tells of it.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aiodev._array import host_values
from aiodev._array.array import Array
from aiodev._array.layout import extent
from aiodev._autograd.delivery import accumulate_all
from aiodev._autograd.modes import current
from aiodev._autograd.node import LeftOut, Node
from aiodev._autograd.tuning import CREDIT, MOST_COMMANDS, MOST_PROGRAMS, MOST_ROOTS, MOST_SCRATCH
from aiodev._autograd.variable import Variable
from aiodev._core.at_fork import in_child
from aiodev._core.backend.kernel_arguments import address_offsets
from aiodev._core.bounded_table import enter
from aiodev._core.callsites import describe_site
from aiodev._core.config import settings
from aiodev._core.context import current as context
from aiodev._core.errors import AiodevError, ClosedError, GradientError
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.recording import under_way
from aiodev._core.timeline.timeline import Timeline
from aiodev._kernel.compile.service import by_entry
from aiodev._kernel.dispatch.call import constants
from aiodev._memory import allocators
from aiodev._memory.buffer import Buffer

__all__ = ["Remembered", "Taking", "remembered_of"]

_new = object.__new__
_WORD = 8
_address, _addresses = struct.Struct("<q"), struct.Struct("<2q")
#: How memory in between is aligned.
_ALIGNMENT = 64


class Notes:
    """What a pass submits to a stream, and the memory that it makes, while the engine runs it.

    Attributes:
        commands: kind, entry (of a fill the pattern), size (of a copy bytes), block, site, number.
        made: buffers, and how many bytes were asked for; they are kept, so that no address is there twice.
        by_host: those of them that the host has written to.
        is_away: other tasks have a turn.
        is_whole: nothing else was submitted, neither by other tasks nor by other threads.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream, self.device = stream, stream.device
        self.commands: list[tuple[Any, ...]] = []
        self.made: list[tuple[Buffer, int]] = []
        self.by_host: set[Buffer] = set()
        host_values.watching[id(self)] = self.by_host
        self.is_away = False
        self.is_whole = True
        self._thread = threading.get_ident()
        self._own = stream._launch, stream._copy, stream._fill
        self._before = stream.timeline.submitted
        self._allocator = allocators.allocator_of(stream.timeline)
        stream._launch, stream._copy, stream._fill = self._noted = self._launch, self._copy, self._fill
        outer = allocators.chosen.get()
        own = {**outer.allocators, self.device: self}
        allocators.chosen.set(allocators.Chosen(own, outer, self))  # type: ignore[arg-type]  # what arrays are made by
        allocators.pool_count += 1

    def _launch(self, entry: int, size: int, block: bytes, site: int) -> int:
        value = self._own[0](entry, size, block, site)
        self._note("launch", entry, size, block, site, value)
        return value

    def _copy(self, dst: int, src: int, nbytes: int) -> int:
        value = self._own[1](dst, src, nbytes)
        self._note("copy", 0, nbytes, _addresses.pack(dst, src), 0, value)
        return value

    def _fill(self, dst: int, count: int, pattern: bytes) -> int:
        value = self._own[2](dst, count, pattern)
        self._note("fill", pattern, count, _address.pack(dst), 0, value)
        return value

    def _note(self, *command: Any) -> None:
        """Note a command; see ``commands``."""
        if self.is_away or threading.get_ident() != self._thread:
            self.is_whole = False
        self.commands.append(command)

    def allocate(self, nbytes: int, timeline: Timeline) -> Buffer:
        """See :meth:`CachingAllocator.allocate`."""
        buffer = self._allocator.allocate(nbytes, timeline)
        self.made.append((buffer, nbytes))
        return buffer

    def close(self) -> None:
        """Note nothing more."""
        stream = self.stream
        del host_values.watching[id(self)]
        if (stream._launch, stream._copy, stream._fill) == self._noted:
            stream._launch, stream._copy, stream._fill = self._own
        else:  # somebody else has bound it anew
            self.is_whole = False
        allocators.chosen.leave(self)
        allocators.pool_count -= 1
        if stream.timeline.submitted - self._before != len(self.commands):
            self.is_whole = False


class _Graph(NamedTuple):
    """What a graph consists of, in the order of its structure."""

    nodes: list[Node]
    leaves: list[Variable]
    kept: list[Any]


class Structure:
    """The structure of a graph below one root.

    Nodes and leaves have numbers, in the order in which :meth:`match` comes by them.

    Args:
        root: the node that the graph ends with.

    Attributes:
        bases: of what the nodes keep, one thing of each buffer.
        leaves: the forms of the leaves.
    """

    __slots__ = ("_aliases", "_nodes", "_numbers", "bases", "leaves")

    def __init__(self, root: Node) -> None:
        self._nodes: list[tuple[Any, Any, Any, tuple[Any, ...]]] = []
        nodes, places, leaves = [root], {root: 0}, dict[Variable, int]()
        kept: list[Any] = []
        for node in nodes:  # to which more are added
            targets: list[Any] = []
            for edge in node.edges:
                if edge.__class__ is tuple:
                    other, output = edge
                    if other not in places:
                        places[other] = len(nodes)
                        nodes.append(other)
                    targets.append((places[other], output))
                else:
                    targets.append(None if edge is None else leaves.setdefault(edge, len(leaves)))
            self._nodes.append((node.derivative, node.forms, node.operands, tuple(targets)))
            kept += node.kept
        self.leaves = [leaf._form for leaf in leaves]
        self._numbers = [(place, value) for place, value in enumerate(kept) if not isinstance(value, Array)]
        self.bases: list[int] = []
        self._aliases: list[tuple[int, int, int]] = []  # of the others, where they are from that one
        first: dict[Buffer, int] = {}
        for place, value in enumerate(kept):
            if isinstance(value, Array):
                base = first.setdefault(value._buffer, place)
                if base == place:
                    self.bases.append(place)
                else:
                    self._aliases.append((place, base, value._address - kept[base]._address))

    def match(self, root: Node, stream: Stream) -> _Graph | None:
        """A graph's nodes, leaves, and what is kept, if it has this structure, and there is nothing that the engine sees to."""
        nodes: list[Any] = [root]
        leaves: list[Any] = []
        kept: list[Any] = []
        versions: list[Any] = []
        for node, (derivative, forms, operands, targets) in zip(nodes, self._nodes, strict=False):  # there come more nodes
            if (
                (node.derivative is not derivative and node.derivative != derivative)
                or node.forms != forms or node.operands != operands
                or node.stream is not stream or node.hooks is not None or node.is_released
                or node.kept.__class__ is LeftOut
            ):  # fmt: skip
                return None
            for edge, target in zip(node.edges, targets, strict=True):  # of one derivative, as many
                if target.__class__ is tuple:
                    if edge.__class__ is not tuple or edge[1] != target[1]:
                        return None
                    place = target[0]
                    if place == len(nodes):
                        nodes.append(edge[0])
                    elif edge[0] is not nodes[place]:
                        return None
                elif target is None:
                    if edge is not None:
                        return None
                elif edge.__class__ is not Variable:
                    return None
                elif target == len(leaves):
                    leaves.append(edge)
                elif edge is not leaves[target]:
                    return None
            kept += node.kept
            versions += node.versions
        if len(set(nodes)) != len(nodes) or len(set(leaves)) != len(leaves):
            return None
        try:
            for one, version in zip(kept, versions, strict=True):
                if version is not None:
                    writer, written = version
                    buffer = one._buffer
                    if buffer._writer is not writer or buffer._written != written:
                        return None
        except ClosedError:  # it was freed
            return None
        for place, value in self._numbers:
            if not _is_same(kept[place], value):
                return None
        for place, base, distance in self._aliases:
            one, other = kept[place], kept[base]
            if one._buffer is not other._buffer or one._address - other._address != distance:
                return None
        for leaf, form in zip(leaves, self.leaves, strict=True):
            gradient = leaf._grad
            if (
                leaf._form is not form or leaf._hooks or leaf._post_hooks
                or (gradient is not None and gradient.__class__ is not Array)
            ):  # fmt: skip
                return None
        return _Graph(nodes, leaves, kept)


class _Untold(Exception):
    """A note does not say what another pass would submit."""


class _Region(NamedTuple):
    """Memory that addresses may be in.

    Attributes:
        first, last: its first byte, and the one behind it.
        owner: whose it is: a number.
        address: what addresses are counted from.
    """

    first: int
    last: int
    owner: int
    address: int


class _Use:
    """Between which commands memory is used; -1 where there is none."""

    __slots__ = ("first", "last")

    def __init__(self) -> None:
        self.first = self.last = -1

    def note(self, number: int) -> None:
        if self.first < 0:
            self.first = number
        self.last = number


class _Result(NamedTuple):
    """The gradient of a leaf.

    Attributes:
        nbytes: of its buffer.
        offset: where in that it is.
        form: its form.
        written, read: the last commands that write the buffer, and that use it.
    """

    nbytes: int
    offset: int
    form: Any
    written: int
    read: int


class Program:
    """What the backward pass of graphs of one structure submits.

    Args:
        structure: of the graphs.
        graph: the one that was noted.
        notes: what was submitted.
        given: the gradient to begin with, if one was given.
        gradients: of the leaves, in their order; None where there is none.

    Raises:
        _Untold: the notes do not say enough.
    """

    __slots__ = (
        "_commands", "_constants", "_kernels", "_pack", "_places", "_reads", "_results", "_scratch", "_template", "given",
        "structure",
    )  # fmt: skip

    def __init__(
        self, structure: Structure, graph: _Graph, notes: Notes, given: Array | None, gradients: Sequence[Array | None]
    ) -> None:
        self.structure = structure
        self.given = None if given is None else given._form
        operands = [graph.kept[place] for place in structure.bases] + ([] if given is None else [given])
        regions = _operand_regions(operands, [one for one in (*graph.kept, given) if isinstance(one, Array)])
        count = len(operands)
        regions += [
            _Region(buffer.address, buffer.address + max(nbytes, 1), count + place, buffer.address)
            for place, (buffer, nbytes) in enumerate(notes.made)
        ]
        regions.sort()
        if any(one.last > other.first for one, other in zip(regions, regions[1:], strict=False)):
            raise _Untold
        uses = [_Use() for _ in range(count + len(notes.made))]
        fixed = {count + place: buffer for place, (buffer, _) in enumerate(notes.made) if buffer in notes.by_host}
        addresses = self._read_commands(graph.nodes, notes, regions, uses, fixed)
        numbers = {command[-1]: number for number, command in enumerate(notes.commands)}
        for buffer in (*(one._buffer for one in operands), *fixed.values()):
            if buffer.written_by(notes.stream.timeline) in numbers:
                raise _Untold  # what was there before is written to
        for use, (buffer, _) in zip(uses[count:], notes.made, strict=True):
            if use.first >= 0 and buffer._written not in numbers:
                raise _Untold  # it is read, and nobody knows who has written it
        # What is known at a pass: the operands' addresses, those of gradients, and that of what is in between.
        made = {buffer: count + place for place, (buffer, _) in enumerate(notes.made)}
        known = {place: (place, 0) for place in range(count)}
        self._results: list[_Result | None] = []
        for gradient in gradients:
            owner = None if gradient is None else made.get(gradient._buffer)
            if gradient is None:
                self._results.append(None)
                continue
            if owner is None or owner in known or gradient.__class__ is not Array or gradient._buffer._written not in numbers:
                raise _Untold
            known[owner] = len(known), 0
            offset = gradient._address - gradient._buffer.address
            nbytes, written = notes.made[owner - count][1], numbers[gradient._buffer._written]
            self._results.append(_Result(nbytes, offset, gradient._form, written, uses[owner].last))
        self._scratch, last = 0, len(known)
        between = [(owner, notes.made[owner - count][1]) for owner in range(count, len(uses)) if owner not in known]
        for owner, offset, end in _laid_out([(owner, nbytes, uses[owner]) for owner, nbytes in between]):
            known[owner] = last, offset
            self._scratch = max(self._scratch, end)
        if self._scratch > MOST_SCRATCH:
            raise _Untold
        self._places = [(known[owner][0], known[owner][1] + distance) for owner, distance in addresses]
        self._reads = [use.last for use in uses[:count]]

    def _read_commands(
        self, nodes: Sequence[Node], notes: Notes, regions: list[_Region], uses: list[_Use], fixed: Mapping[int, Buffer]
    ) -> list[tuple[int, int]]:
        """Take the blocks apart: gives whose addresses there are, and how far from its own; but of what is ``fixed``."""
        sites = {node.site: place for place, node in reversed(list(enumerate(nodes)))}
        owners, known = _owners(b"".join([command[3] for command in notes.commands]), regions)
        addresses, pieces, end = [], [b""], 0
        self._commands: list[tuple[str, int, Any, int, int, int]] = []
        self._kernels: dict[int, Any] = {}
        places: dict[Any, list[int]] = {"fill": [0], "copy": [0, _WORD]}
        constant: dict[Buffer, int] = {}
        for number, (kind, entry, size, block, site, _) in enumerate(notes.commands):
            own = places.get(entry if kind == "launch" else kind)
            if own is None:
                kernel = self._kernels[entry] = by_entry.get(entry)
                if kernel is None or not kernel.ready:
                    raise _Untold
                own = places[entry] = sorted(address_offsets(kernel.spec.ndim, kernel.spec.arguments))
            done = 0
            for at in own:
                (word,) = _address.unpack_from(block, at)
                place = owners[(end + at) // _WORD]
                if place >= 0:
                    known -= 1
                    region = regions[place]
                    if region.owner in fixed:
                        constant[fixed[region.owner]] = number
                        continue
                    uses[region.owner].note(number)
                    addresses.append((region.owner, word - region.address))
                    pieces[-1] += block[done:at]
                    pieces.append(b"")
                    done = at + _WORD
                    continue
                buffer = constants.get(word)
                if buffer is None:
                    raise _Untold
                constant[buffer] = number
            pieces[-1] += block[done:]
            self._commands.append((kind, sites.get(site, 0), entry, size, end, end + len(block)))
            end += len(block)
        if known:  # a number that may be an address
            raise _Untold
        self._constants = list(constant.items())
        layout = "".join(f"{len(piece)}sq" for piece in pieces[:-1])
        self._pack: Callable[..., bytes] = struct.Struct(f"<{layout}{len(pieces[-1])}s").pack
        self._template: list[Any] = [one for piece in pieces[:-1] for one in (piece, 0)] + [pieces[-1]]
        return addresses

    def submit(self, graph: _Graph, stream: Stream, given: Array | None) -> list[Array | None]:
        """Submit it for another graph of the structure; gives the gradients of its leaves.

        Raises:
            OutOfMemoryError: there is no memory for it, and nothing was submitted.
            GradientError: a submission was refused; the cause says why.
        """
        nodes, _, kept = graph
        timeline = stream.timeline
        memory = allocators.pools[stream.device] if not allocators.pool_count else allocators.allocator_of(timeline)
        operands = [kept[place] for place in self.structure.bases]
        if given is not None:
            operands.append(given)
        bases = [one._address for one in operands]
        gradients: list[Array | None] = []
        for result in self._results:
            if result is None:
                gradients.append(None)
                continue
            gradient = _new(Array)
            gradient._buffer = buffer = memory.allocate(result.nbytes, timeline)
            bases.append(buffer.address)
            gradient._address = buffer.address + result.offset
            gradient._form = result.form
            gradient._packed = None
            gradients.append(gradient)
        scratch = None
        if self._scratch:
            scratch = memory.allocate(self._scratch, timeline)
            bases.append(scratch.address)
        words = self._template.copy()
        words[1::2] = [bases[base] + distance for base, distance in self._places]
        block = self._pack(*words)
        values: list[int] = []
        place = 0
        try:
            launch = stream._launch
            for kind, place, entry, size, first, last in self._commands:
                if kind == "launch":
                    values.append(launch(entry, size, block[first:last], nodes[place].site))
                elif kind == "fill":
                    (dst,) = _address.unpack_from(block, first)
                    values.append(stream._fill(dst, size, entry))
                else:
                    dst, src = _addresses.unpack_from(block, first)
                    values.append(stream._copy(dst, src, size))
            self._record_uses(timeline, values, operands, gradients, scratch)
        except BaseException as error:  # a refusal, or Ctrl-C behind a submission: as if all of it used all memory
            values = [timeline.submitted] * len(self._commands)
            self._record_uses(timeline, values, operands, gradients, scratch)
            if isinstance(error, Exception):
                raise GradientError(nodes[place].name, describe_site(nodes[place].site)) from error
            raise
        return gradients

    def _record_uses(
        self, timeline: Timeline, values: list[int], operands: list[Array], gradients: list[Array | None],
        scratch: Buffer | None,
    ) -> None:  # fmt: skip
        """Note in buffers the last operations that use them; what is new has no others."""
        for operand, number in zip(operands, self._reads, strict=True):
            if number >= 0:
                buffer, value = operand._buffer, values[number]
                if buffer._reader is not timeline:
                    buffer._record_read(timeline, value)
                elif buffer._read < value:
                    buffer._read = value
        for gradient, result in zip(gradients, self._results, strict=True):
            if gradient is not None and result is not None:
                gradient._buffer._written = values[result.written]
                if result.read != result.written:
                    gradient._buffer._read = values[result.read]
        for buffer, number in self._constants:
            buffer._record_read(timeline, values[number])
        if scratch is not None:
            scratch._written = values[-1]


def _owners(blocks: bytes, regions: Sequence[_Region]) -> tuple[list[int], int]:
    """For each word the region that it is an address in, -1 where there is none; and how many words are in one."""
    words = np.frombuffer(blocks, np.int64)
    if not regions:
        return [-1] * len(words), 0
    firsts, lasts = (np.array([getattr(region, name) for region in regions], np.int64) for name in ("first", "last"))
    places = np.searchsorted(firsts, words, "right") - 1
    places[words >= lasts[places]] = -1  # of the last region, where there is none
    return places.tolist(), int(np.count_nonzero(places >= 0))


def _operand_regions(operands: Sequence[Array], kept: Iterable[Array]) -> list[_Region]:
    """The memory of what is kept; operands have a buffer each."""
    owners = {operand._buffer: place for place, operand in enumerate(operands)}
    if len(owners) != len(operands):
        raise _Untold
    spans: dict[int, tuple[int, int]] = {}
    for one in kept:
        first, last = extent(one._layout, one.itemsize)
        first, last, owner = one._address + first, one._address + last, owners[one._buffer]
        before = spans.get(owner, (first, last))
        spans[owner] = min(first, before[0]), max(last, before[1])
    return [_Region(first, last, owner, operands[owner]._address) for owner, (first, last) in spans.items()]


def _laid_out(wanted: Iterable[tuple[int, int, _Use]]) -> Iterator[tuple[int, int, int]]:
    """Places for memory that is wanted between two commands each, from 0 on: whose, from where, to where."""
    taken: list[tuple[int, int, int]] = []  # from where, to where, until when
    for owner, nbytes, use in sorted(wanted, key=lambda one: one[2].first):
        if use.first < 0:
            continue
        taken = sorted(one for one in taken if one[2] >= use.first)
        nbytes = -(-max(nbytes, 1) // _ALIGNMENT) * _ALIGNMENT
        begin = 0
        for first, end, _ in taken:
            if first - begin >= nbytes:
                break
            begin = max(begin, end)
        taken.append((begin, begin + nbytes, use.last))
        yield owner, begin, begin + nbytes


def _is_same(one: Any, other: Any) -> bool:
    """Whether two numbers are of one class and value; zeros are told apart by their signs."""
    if one.__class__ is not other.__class__ or one != other:
        return False
    return bool(one) or repr(one) == repr(other)


class Taking:
    """A pass of the engine that notes are taken of.

    Args:
        remembered: what is to remember it.
        root: the node that it begins with.
        stream: that all of it is submitted to.
    """

    def __init__(self, remembered: Remembered, root: Node, stream: Stream) -> None:
        self._remembered = remembered
        self._structure = Structure(root)
        graph = self._structure.match(root, stream)
        self._graph = graph
        self.notes = None if graph is None else Notes(stream)

    def pause(self, is_away: bool) -> None:
        """Other tasks have a turn from now on, or until now."""
        if self.notes is not None:
            self.notes.is_away = is_away

    def end(self, given: Array | None, gradients: dict[Variable, Array]) -> None:
        """All is submitted: remember it."""
        notes, graph = self.notes, self._graph
        self.close()
        if notes is None or graph is None or not notes.is_whole or not 0 < len(notes.commands) <= MOST_COMMANDS:
            return
        results = [gradients.get(leaf) for leaf in graph.leaves]
        try:
            program = Program(self._structure, graph, notes, given, results)
        except _Untold:
            return
        self._remembered.enter(program)
        self._remembered.note_soon()

    def close(self) -> None:
        """Take no more notes."""
        notes, self.notes = self.notes, None
        if notes is not None:
            notes.close()


class Remembered:
    """What passes submit that begin with one kind of node.

    Notes are taken ever more seldom where nothing comes of them, as while kernels are still being compiled.
    """

    __slots__ = ("_balance", "_met", "_next", "_programs")

    def __init__(self) -> None:
        self._programs: list[Program] = []  # those used last come first; replaced, not changed
        self._met = 0  # passes that the engine had
        self._next = 1  # of these, the next that notes are taken of
        self._balance = CREDIT  # as many more may come that nothing is remembered of, though something is of others

    def submit(self, root: Node, given: Array | None, retain_graph: bool) -> bool:
        """Submit the pass from a root, and store the gradients, if it is remembered.

        Raises:
            GradientError: a submission was refused.
        """
        stream = root.stream
        form = None if given is None else given._form
        for program in self._programs:
            graph = program.structure.match(root, stream) if program.given is form else None
            if graph is None:
                continue
            is_left = False
            try:
                gradients = program.submit(graph, stream, given)
            except AiodevError as error:
                is_left = not isinstance(error, GradientError)  # such as no memory: the engine may do with less
                if is_left:
                    return False
                raise
            finally:
                if not (retain_graph or is_left):
                    for node in graph.nodes:
                        node.release()
            accumulate_all(graph.leaves, gradients, stream)
            self._balance = min(self._balance + 1, CREDIT)
            if program is not self._programs[0]:
                self.enter(program)
            return True
        if self._programs:
            self._balance -= 1
            if self._balance < 0:  # structures change all the time: do not even compare
                self._programs = []
        return False

    def take_notes(self, root: Node, targets: Collection[Any]) -> Taking | None:
        """Notes of the pass that the engine begins, if they are wanted; ``targets`` are its nodes and leaves."""
        met = self._met
        self._met += 1
        if met < self._next or self._balance < 0:
            return None
        if len(targets) > MOST_COMMANDS:
            return None
        self._next = met + met // 2 + 1
        for target in targets:
            if target.__class__ is not Variable and not target._is_repeatable:
                return None
        try:
            return Taking(self, root, root.stream)
        except ClosedError:  # of what is kept, something was freed
            return None

    def enter(self, program: Program) -> None:
        """Remember a pass, ahead of others."""
        others = [one for one in self._programs if one is not program]
        self._programs = [program, *others[: MOST_PROGRAMS - 1]]

    def note_soon(self) -> None:
        """Take notes of the next pass that the engine has: notes come to something now."""
        self._next = self._met


_remembered: dict[Any, Remembered] = {}
in_child(_remembered.clear)


def remembered_of(root: Variable, given: Array | None) -> Remembered | None:
    """What is remembered of passes that begin like this; None where it takes the engine."""
    edge, form = root._edge, root._form
    if edge.__class__ is not tuple or under_way:
        return None
    node, output = edge
    stream: Stream = node.stream
    if context().stream is not stream and current_stream(form.device) is not stream:
        return None
    if stream.maxsize or current().anomaly or settings.debug:  # in debug mode, each array has guards of its own
        return None
    if given is not None and (given.__class__ is not Array or given._form is not form):
        return None
    kind = node.derivative
    key = node.name if kind.__class__ is tuple else kind, node.operands, output, form  # in the former there may be slices
    remembered = _remembered.get(key)
    if remembered is None:
        remembered = Remembered()
        enter(_remembered, key, remembered, MOST_ROOTS)
    return remembered

"""Copies between pageable host memory and a device that the host does not reach: in pieces, through page-locked blocks.

**Problem.** A driver copies pageable memory only while the caller waits, or through a block of its own that it fills in the
caller's thread. Neither leaves the loop free.

**How.** A *lane*, a stream of the CPU, copies piece after piece between the pageable memory and a few page-locked blocks; the
device's stream copies between these and the device. Each waits for the other where it must, on the devices: everything is
submitted at once, both halves overlap, and no thread of Python's copies anything. The device's stream is held from the first
piece to the last, so that the pageable memory is read, or written, in its order.

**Invariants.**

1.  A block is filled again only after the copy that empties it is done.
2.  The lane touches pageable memory only after all that the device's stream was given before; what that stream is given next
    runs after the lane's last piece.
3.  A lane serves one copy at a time: what fails on it belongs to that copy, whose own stream tells of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from aiodev._core import faults
from aiodev._core.backend import COMPLETED, FAULTS
from aiodev._core.registry import registry
from aiodev._core.stream import Stream
from aiodev._core.timeline import Timeline
from aiodev._core.watcher import watcher

__all__ = ["DIRECT", "Block", "Staged", "download", "upload"]

#: Bytes that are copied to a block here and now, if nothing is ahead of them: it takes no longer than submitting does.
DIRECT = 32 << 10
#: Bytes of a piece: long enough to hide the hand-over between host and device; larger for copies of very many pieces.
PIECE, MOST_PIECES = 4 << 20, 64
#: Blocks in flight: one that is filled, one that is emptied, and one for the hand-over between.
BLOCKS = 3
_LANES_KEPT = 8

_lanes: list[Stream] = []
registry.after_fork.append(_lanes.clear)

#: Submits a copy (to, from, bytes) to the device's stream and returns its number.
Submit = Callable[[int, int, int], int]


class Block:
    """Host memory that devices copy to and from without the host's help."""

    __slots__ = ("address", "bytes")

    def __init__(self, nbytes: int) -> None:
        self.bytes = np.empty(nbytes, np.uint8)
        self.address: int = self.bytes.ctypes.data


class Staged(NamedTuple):
    """What a staged copy became."""

    value: int  #: its last operation on the device's timeline
    lane: Timeline | None  #: which used the host memory; None when it was used at once
    lane_value: int


def upload(timeline: Timeline, submit: Submit, dst: int, src: int, nbytes: int, whole: bool = False) -> Staged:
    """Copy ``nbytes`` from the host's ``src`` to the device's ``dst``; ``whole`` in one piece."""
    if nbytes <= DIRECT and timeline.counters[COMPLETED] >= timeline.submitted:
        block = Block(nbytes)
        ctypes.memmove(block.address, src, nbytes)
        value = submit(dst, block.address, nbytes)
        timeline.keep(value, block)
        return Staged(value, None, 0)
    lane = _take_lane(timeline)
    copy = lane._copy
    piece, blocks = _blocks(nbytes, whole)
    done: list[int] = []
    value = lane_value = 0
    try:
        for offset in range(0, nbytes, piece):
            length, block = min(piece, nbytes - offset), blocks[len(done) % len(blocks)]
            if len(done) >= len(blocks):
                _order(lane.timeline, timeline, done[-len(blocks)])
            lane_value = copy(block.address, src + offset, length)
            _order(timeline, lane.timeline, lane_value)
            value = submit(dst + offset, block.address, length)
            done.append(value)
    finally:
        _finish(lane, timeline, blocks)
    return Staged(value, lane.timeline, lane_value)


def download(timeline: Timeline, submit: Submit, dst: int, src: int, nbytes: int, whole: bool = False) -> Staged:
    """Copy ``nbytes`` from the device's ``src`` to the host's ``dst``; ``whole`` in one piece."""
    lane = _take_lane(timeline)
    copy = lane._copy
    piece, blocks = _blocks(nbytes, whole)
    done: list[int] = []
    value = lane_value = 0
    try:
        for offset in range(0, nbytes, piece):
            length, block = min(piece, nbytes - offset), blocks[len(done) % len(blocks)]
            if len(done) >= len(blocks):
                _order(timeline, lane.timeline, done[-len(blocks)])
            value = submit(block.address, src + offset, length)
            _order(lane.timeline, timeline, value)
            lane_value = copy(dst + offset, block.address, length)
            done.append(lane_value)
        value = _order(timeline, lane.timeline, lane_value) or value
    finally:
        _finish(lane, timeline, blocks)
    return Staged(value, lane.timeline, lane_value)


def _order(later: Timeline, earlier: Timeline, value: int) -> int | None:
    return later.join(earlier, value, earlier.clock_at(value))


def _blocks(nbytes: int, whole: bool) -> tuple[int, list[Block]]:
    piece = nbytes if whole else max(PIECE, -(-nbytes // MOST_PIECES))
    return piece, [Block(min(piece, nbytes)) for _ in range(min(BLOCKS, -(-nbytes // piece)))]


def _take_lane(timeline: Timeline) -> Stream:
    try:
        lane = _lanes.pop()
    except IndexError:
        lane = Stream("cpu", priority=-1)
    if timeline.submitted:
        _order(lane.timeline, timeline, timeline.submitted)
    return lane


def _finish(lane: Stream, timeline: Timeline, blocks: list[Block]) -> None:
    """Hold the blocks while either side may use them, and keep the lane for another copy."""
    timeline.keep(timeline.submitted, blocks)
    lane.timeline.keep(lane.timeline.submitted, blocks)
    watcher.watch(lane.timeline, lane.timeline.submitted, partial(_give_back, lane))


def _give_back(lane: Stream) -> None:
    timeline = lane.timeline
    timeline.release()
    if timeline.counters[FAULTS]:
        for fault in timeline.all_faults():
            faults.tell(timeline, fault)  # the copy's own stream failed, and tells of it (invariant 3)
    elif len(_lanes) < _LANES_KEPT:
        _lanes.append(lane)

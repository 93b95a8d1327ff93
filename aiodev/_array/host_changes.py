"""Host arrays that change between the submission of a copy and the copy, noticed where ``AIODEV_DEBUG=1``.

A copy reads its host array in stream order, so until it is done the array must not change. A checksum at submission and one
behind the copy show that it did. The second is an operation of its own, a called function, and the completion that the
program gets is that operation's: a program that waits for it may change the array.

A copy behind a function or a future of the program's may be one of what these are to write. Nothing is said of that.
"""

from __future__ import annotations

import logging
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from aiodev._array.array import Array
from aiodev._array.dtypes import DType
from aiodev._core import callsites
from aiodev._core.streams.completion import Completion
from aiodev._core.streams.host_calls import Call
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.noting import Noting
from aiodev._core.waiting.block_until import waits_for_program

__all__ = ["copy_checked"]

logger = logging.getLogger("aiodev")

HostArray = np.ndarray[Any, DType]


def copy_checked(
    copy: Callable[[Stream, Any, Any], Completion[None]], stream: Stream, dst: Any, src: Any
) -> Completion[None]:
    """Copy, and check afterwards that ``src``, if it is a host array, has not changed. Replays read what is there then."""
    timeline = stream.timeline
    if isinstance(src, Array) or timeline.recording is not None or waits_for_program(timeline):
        return copy(stream, dst, src)
    host: HostArray = np.asarray(src)
    before = _checksum(host)
    with Noting():
        copy(stream, dst, host)
        check = Call(timeline, check_host_array, (host, before, timeline.label, callsites.outside(sys._getframe(1))))
        value = check.submit(by_program=False)
        dst._buffer._record_write(timeline, value)  # nor may a reader of the copy know before
    return Completion(timeline, value)


def check_host_array(host: HostArray, before: int, stream: str, site: int) -> None:
    if _checksum(host) != before:
        logger.error(
            "%s: the host array of shape %s and dtype %s that is copied at %s changed before it was read; wait for the "
            "completion of the copy first, or make the array by aiodev.asarray, which takes the values at once",
            stream, host.shape, host.dtype, callsites.describe_site(site),
        )  # fmt: skip


def _checksum(host: HostArray) -> int:
    return zlib.crc32(np.ascontiguousarray(host).view(np.uint8).data)

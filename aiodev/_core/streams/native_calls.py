"""Native calls: functions of other libraries, and their streams, in the order of a stream of ours."""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from aiodev._core import arguments
from aiodev._core.streams.completion import Completion
from aiodev._core.timeline.noting import Noting

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline

__all__ = [
    "CELL",
    "HANDLE",
    "MOST_ARGUMENTS",
    "PLACE",
    "RANGE",
    "VALUE",
    "NativeStream",
    "address_places",
    "external_handle",
    "may_wait",
    "pack",
]

#: What a word is: itself; the device's own stream; the address of the word that is meant when the call is made; itself the
#: first time, and more by a step each time; or the address of several words, of which the one is meant whose place the calls
#: hold.
VALUE, HANDLE, CELL, RANGE, PLACE = range(5)
#: Bits of a word's kind, above which the step is.
_KIND_BITS = 8
#: Words in front of the calls: a lock's address, how many locks, whether calls may wait, how many calls.
_HEAD = 4
_WORD = 8
MOST_ARGUMENTS = 24
#: Handles that are no addresses: the legacy default stream, and the calling thread's own.
LEGACY, PER_THREAD = 1, 2


def pack(calls: Sequence[Sequence[Any]], lock: Any, may_wait: bool = False) -> bytes:
    """The block of :meth:`Executor.call_native`: the first lock's address or 0, how many there are, whether the calls may wait,
    how many calls there are; of each, how many arguments and, above 32 bits, how often it is made; then (kind, word) of the
    function and of each argument.

    Raises:
        TypeError: what is no integer, range, array, None or writable buffer of 8 bytes.
        ValueError: a call of nothing, with too many arguments, or with ranges of several lengths.
    """
    address, places = (0, 1) if lock is None else _buffer(lock)
    words = [address, places, int(bool(may_wait)), len(calls)]
    for call in calls:
        if not isinstance(call, Sequence):
            raise arguments.refusal("call_native", "calls", "tuples of a function's address and its arguments", call)
        if not 1 <= len(call) <= 1 + MOST_ARGUMENTS:
            raise ValueError(f"call_native: a call is a function and up to {MOST_ARGUMENTS} arguments, here are {len(call)}")
        times = {len(item) for item in call if isinstance(item, range)} or {1}
        if len(times) > 1:
            raise ValueError(f"call_native: the ranges of a call are of one length, here are {sorted(times)}")
        words.append(times.pop() << 32 | len(call) - 1)
        for item in call:
            if item is None:
                words += HANDLE, 0
            elif isinstance(item, int):
                words += VALUE, item
            elif isinstance(item, range):
                words += RANGE | item.step << _KIND_BITS, item.start
            elif hasattr(item, "record_stream"):  # an array
                words += VALUE, item.address
            else:
                address, count = _buffer(item)
                if count not in (1, places):
                    raise ValueError(f"call_native: a buffer of {count} words, where there are {places} places")
                words += CELL if count == 1 else PLACE, address
    return struct.pack(f"<{len(words)}Q", *(word & 0xFFFFFFFFFFFFFFFF for word in words))


def _buffer(cell: Any) -> tuple[int, int]:
    """The address of a writable buffer, and how many words it has."""
    try:
        return ctypes.addressof(ctypes.c_int64.from_buffer(cell)), memoryview(cell).nbytes // _WORD
    except (TypeError, ValueError) as error:
        wanted = "an integer, a range, an array, None or a writable buffer of 8 bytes"
        raise TypeError(f"call_native: expected {wanted}, got {cell!r}") from error


def may_wait(block: bytes) -> bool:
    """Whether the calls of a block may wait for the device."""
    return block[2 * _WORD] != 0


def address_places(block: bytes) -> Iterator[int]:
    """Where, in bytes, a block has words that are passed as they are, or counted from, and may therefore be addresses."""
    words = struct.unpack(f"<{len(block) // _WORD}q", block)
    place = _HEAD
    for _ in range(words[_HEAD - 1]):
        count, place = words[place] & 0xFFFFFFFF, place + 1
        for _ in range(1 + count):
            if words[place] & (1 << _KIND_BITS) - 1 in (VALUE, RANGE):
                yield _WORD * (place + 1)
            place += 2


def external_handle(stream: Any) -> int:
    """The driver's handle of another library's stream, from its ``__cuda_stream__``, or as it is.

    Raises:
        TypeError: it is neither.
        ValueError: another version of the protocol, or the default stream of whatever thread asks.
    """
    if isinstance(stream, int):
        handle = stream
    else:
        protocol = getattr(stream, "__cuda_stream__", None)
        if protocol is None:
            raise TypeError(f"external={stream!r}: expected an object with __cuda_stream__, or a CUstream's address")
        try:
            version, handle = protocol() if callable(protocol) else protocol
        except (AttributeError, TypeError, ValueError):  # it may have none, as one of ours on another device
            raise arguments.refusal(
                "Stream", "external", "an object whose __cuda_stream__ is a pair of integers", stream
            ) from None
        if version != 0:
            raise ValueError(f"external={stream!r}: its __cuda_stream__ is of version {version}, 0 is known")
    if handle == PER_THREAD:
        raise ValueError(f"external={stream!r}: each thread has a default stream of its own there; make a stream instead")
    return handle or LEGACY


class NativeStream:
    """The part of a stream that native libraries use."""

    __slots__ = ()

    if TYPE_CHECKING:
        timeline: Timeline

        def _check_room(self) -> None: ...

    def call_native(
        self, *calls: Sequence[Any], lock: Any = None, may_wait: bool = False, reads: Sequence[Any] = ()
    ) -> Completion[None]:
        """Have functions of a native library submit work to the device's own stream, in stream order.

        A call is a tuple of a function's address and its arguments, at most 24, each passed as a word of 8 bytes: integers;
        arrays, which are passed by their address and live until the operation is done; None for the device's own stream (a
        ``CUstream``); or a writable buffer of 8 bytes, such as NumPy's of one int64, for what it holds when the call is made.
        A call with a range among its arguments is made once for each of its integers; of several ranges all are of one length.
        The functions are called one after the other on whichever thread hands the operation on, with the device's context
        current; they must neither block nor call Python. The first that returns anything but 0 fails the operation.

        Raises:
            NotImplementedError: the backend's streams are its own alone; there kernels call native functions.
            TypeError: a call is no sequence, or holds what is passed in no way.
            ValueError: it is a call of nothing, or has too many arguments, or buffers or ranges of lengths that do not fit.

        Args:
            lock: a buffer of 8 bytes, 0 at first, that the calls hold meanwhile: for a library's handle that streams share. One
                of several words is as many locks, of which the calls hold one; a buffer of as many words among the arguments
                then stands for the word in its place.
            may_wait: the functions may wait for the device. Then a thread of the device's calls them, when all that is ahead of
                them on the stream is done, and what they have submitted is done before the lock is let go of.
            reads: those of the arguments that are arrays, and that the functions only read: a failure leaves them as they are.

        Example:
            >>> try:  # cublasSetStream(handle, stream), cublasSgemm(handle, …)
            ...     aiodev.Stream("cpu").call_native((0x7F00, 1, None))
            ... except NotImplementedError as error:
            ...     print(error)
            backend 'cpu' has no streams of its own; kernels call native functions there
        """
        self._check_room()
        timeline = self.timeline
        if not timeline.handle.backend.capabilities.native_streams:
            obstacle = f"backend {timeline.handle.name!r} has no streams of its own"
            raise NotImplementedError(f"{obstacle}; kernels call native functions there")
        read = arguments.items("call_native", "reads", reads, "arrays among the arguments")
        packed = pack(calls, lock, may_wait)
        with Noting():
            value = timeline.submit_with((calls, lock), 0, timeline.operations.call_native, timeline.queue, packed)
            for item in itertools.chain(*calls):
                if hasattr(item, "record_stream"):
                    item.record_stream(self, writes=not any(item is array for array in read))
        return Completion(timeline, value)

    def __cuda_stream__(self) -> tuple[int, int]:
        """The CUDA stream protocol: (0, the driver's handle), for other libraries to submit to.

        What they submit is ordered after all that was submitted here so far, and before what is submitted here later. It is
        theirs: waiting for this stream does not wait for it, and the arrays that it uses must be told
        (:meth:`Array.record_stream <aiodev.Array.record_stream>`, after something was submitted here behind it).

        Raises:
            RuntimeError: something that was submitted is still held on the host (behind a future, a gate, a copy of ordinary
                memory, or a launch that can fail): what another library submits now would overtake it. Wait for it first.
            AttributeError: the device has no such streams.
        """
        timeline = self.timeline
        if not timeline.handle.backend.capabilities.cuda_interfaces:
            raise AttributeError(f"a stream on {timeline.device} has no CUDA stream")
        timeline.handle.ensure_started()
        handle = timeline.hand_on().handle_of(timeline.queue)
        if handle == 0:
            raise RuntimeError(
                f"{timeline.label} holds operations on the host, which another library's work would overtake; "
                "`await stream.synchronize()` first"
            )
        return 0, handle

"""Native calls: functions of other libraries, and their streams, in the order of a stream of ours."""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aiodev._core import arguments
from aiodev._core.streams.completion import Completion

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline

__all__ = ["CELL", "HANDLE", "MOST_ARGUMENTS", "VALUE", "NativeStream", "external_handle", "pack"]

#: What a word is: itself, the device's own stream, or the address of the word that is meant when the call is made.
VALUE, HANDLE, CELL = 0, 1, 2
MOST_ARGUMENTS = 24
#: Handles that are no addresses: the legacy default stream, and the calling thread's own.
LEGACY, PER_THREAD = 1, 2


def pack(calls: Sequence[Sequence[Any]], lock: Any) -> bytes:
    """The block of :meth:`Executor.call_native`: a lock's address or 0, how many calls; of each, how many arguments, then
    (kind, word) of the function and of each argument.

    Raises:
        TypeError: what is no integer, array, None or writable buffer of 8 bytes.
        ValueError: a call of nothing, or with too many arguments.
    """
    words = [0 if lock is None else _address(lock), len(calls)]
    for call in calls:
        if not isinstance(call, Sequence):
            raise arguments.refusal("call_native", "calls", "tuples of a function's address and its arguments", call)
        if not 1 <= len(call) <= 1 + MOST_ARGUMENTS:
            raise ValueError(f"call_native: a call is a function and up to {MOST_ARGUMENTS} arguments, here are {len(call)}")
        words.append(len(call) - 1)
        for item in call:
            if item is None:
                words += HANDLE, 0
            elif isinstance(item, int):
                words += VALUE, item
            elif hasattr(item, "record_stream"):  # an array
                words += VALUE, item.address
            else:
                words += CELL, _address(item)
    return struct.pack(f"<{len(words)}Q", *(word & 0xFFFFFFFFFFFFFFFF for word in words))


def _address(cell: Any) -> int:
    try:
        return ctypes.addressof(ctypes.c_int64.from_buffer(cell))
    except (TypeError, ValueError) as error:
        wanted = "an integer, an array, None or a writable buffer of 8 bytes"
        raise TypeError(f"call_native: expected {wanted}, got {cell!r}") from error


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

    def call_native(self, *calls: Sequence[Any], lock: Any = None) -> Completion[None]:
        """Have functions of a native library submit work to the device's own stream, in stream order.

        A call is a tuple of a function's address and its arguments, at most 24, each passed as a word of 8 bytes: integers;
        arrays, which are passed by their address and live until the operation is done; None for the device's own stream (a
        ``CUstream``); or a writable buffer of 8 bytes, such as NumPy's of one int64, for what it holds when the call is made.
        The functions are called one after the other on whichever thread hands the operation on, with the device's context
        current; they must neither block nor call Python. The first that returns anything but 0 fails the operation.

        Raises:
            NotImplementedError: the backend's streams are its own alone; there kernels call native functions.
            TypeError: a call is no sequence, or holds what is passed in no way.
            ValueError: it is a call of nothing, or has too many arguments.

        Args:
            lock: a buffer of 8 bytes, 0 at first, that the calls hold meanwhile: for a library's handle that streams share.

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
        value = timeline.operations.call_native(timeline.queue, pack(calls, lock))
        timeline.keep(value, (calls, lock))
        for item in itertools.chain(*calls):
            if hasattr(item, "record_stream"):
                item.record_stream(self)
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

"""Time slices: for how long a thread runs, where others want its core as well, until they have their turn.

Linux serves threads in the order in which their slices would end, among those that have not had more than their share [1]_. So
a thread with a shorter slice is served sooner and more often, for a shorter time: its share is the same, and the longest that
it waits is less. Since Linux 6.12 a thread may ask for a slice of its own [2]_. Threads whose event loop waits for a device,
and workers, do so. Without others on its core a thread runs on, whatever its slice.

.. [1] I. Stoica, H. Abdel-Wahab: Earliest Eligible Virtual Deadline First. A Flexible and Accurate Mechanism for Proportional
   Share Resource Allocation. Old Dominion University, 1995.
.. [2] ``sched_runtime`` in sched_setattr(2), in ns, from 0.1 to 100 ms.
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys

from aiodev._core.config import settings

__all__ = ["shorten_time_slice", "time_slice"]

#: The numbers of sched_setattr and sched_getattr, for which GNU's C library has had functions only since 2025; of 64 bits.
_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}
_SET, _GET = _CALLS.get(platform.machine(), (0, 0)) if sys.platform == "linux" and sys.maxsize > 1 << 32 else (0, 0)
#: ``struct sched_attr``: size, policy, flags, niceness, priority, runtime, deadline and period; and what follows.
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
_NBYTES = 56
_OTHER = 0  # the policy of threads that asked for none
_RESET_ON_FORK = 1  # threads and processes that the thread starts have none of this


def time_slice(thread: int = 0) -> int:
    """The slice (ns) of a thread, by the system's number, or of this one; 0 where other rules hold for it, or nobody tells."""
    attributes = _read(thread)
    return attributes[5] if attributes is not None and attributes[1] == _OTHER else 0


def shorten_time_slice() -> None:
    """Ask for the calling thread's slice to be ``AIODEV_SLICE_US``, if it is longer; where that is refused it stays.

    A thread that was given precedence, by a niceness below 0 or by another policy, is left alone. One that has asked carries
    ``SCHED_FLAG_RESET_ON_FORK``, which Linux lets nobody drop without rights: to ask for another policy it has to keep that.
    """
    slice_ns = 1000 * settings.slice_us
    attributes = _read() if slice_ns else None
    if attributes is None:
        return
    size, policy, flags, niceness, priority, runtime, deadline, period = attributes
    if policy != _OTHER or niceness < 0 or runtime <= slice_ns:
        return
    wanted = size, policy, flags | _RESET_ON_FORK, niceness, priority, slice_ns, deadline, period
    ctypes.CDLL(None).syscall(_SET, 0, ctypes.create_string_buffer(_ATTRIBUTES.pack(*wanted), _NBYTES), 0)


def _read(thread: int = 0) -> tuple[int, ...] | None:
    """What the system says of a thread, if it does; a slice of 0 where it knows of none."""
    if not _GET:
        return None
    place = ctypes.create_string_buffer(_NBYTES)
    return None if ctypes.CDLL(None).syscall(_GET, thread, place, _NBYTES, 0) else _ATTRIBUTES.unpack_from(place)

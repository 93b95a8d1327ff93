"""The GIL, let go of around what may block in the driver.

Submissions are calls of some hundred nanoseconds that hold it, since to let go and take it again can cost five milliseconds
while another thread computes in Python. But a call that waits for the device, with the GIL, is a deadlock when the device
itself waits for a host function that another library wrote in Python. So a submission lets go when it may block: see
:func:`aiodev._backends.cuda.executor.submission.may_block`.

A call that blocks may hold up all others, so whoever makes one and whoever submits with the GIL shake hands: one adds to
``waiters``, then waits until nobody is ``submitting``; the other adds to that, with all locks that it needs, then loads
``waiters``. A submission that finds somebody there lets go of the GIL; one that finds nobody is through before the other
blocks. Who adds to ``waiters`` with the GIL has nobody to wait for: no submission has it then.
"""

from __future__ import annotations

from aiodev._backends.cuda.structs import Device
from aiodev._backends.cuda.tuning import LOCK_TRIES
from aiodev._backends.executor.locking import lock, try_lock
from aiodev._backends.executor.structs import Lock
from aiodev._native.compile import External, inner, int64, void
from aiodev._native.intrinsics import pause

_save = External("PyEval_SaveThread", int64())
_restore = External("PyEval_RestoreThread", void(int64))


@inner
def let_go() -> int:
    """Let other threads have the GIL; what is returned is for ``take_again``."""
    return _save()


@inner
def take_again(saved: int) -> None:
    """Have the GIL again, if it was let go; with no lock held that a thread with the GIL may want."""
    if saved != 0:
        _restore(saved)


@inner
def begin_waiting(device: Device) -> None:
    """Note, without the GIL, that a call is to be made which may wait for the device; nobody is in the driver with it then."""
    device.waiters.fetch_add(1)
    while device.submitting.load_fence() != 0:
        pause()


@inner
def end_waiting(device: Device) -> None:
    """Note that it was made."""
    device.waiters.fetch_add(-1)


@inner
def lock_or_let_go(word: Lock) -> int:
    """Take a lock, without the GIL if it is not to be had soon; gives what ``take_again`` needs."""
    for _ in range(LOCK_TRIES):
        if try_lock(word):
            return 0
        pause()
    saved = let_go()
    lock(word)
    return saved

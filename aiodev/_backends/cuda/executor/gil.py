"""The GIL, let go of around what may block in the driver.

Submissions are calls of some hundred nanoseconds that hold it, since to let go and take it again can cost five milliseconds
while another thread computes in Python. But a call that waits for the device, with the GIL, is a deadlock when the device
itself waits for a host function that another library wrote in Python. So a submission lets go when it may block: see
:func:`aiodev._backends.cuda.executor.submission.may_block`.
"""

from __future__ import annotations

from aiodev._backends.cuda.tuning import LOCK_TRIES
from aiodev._backends.executor.compile import External, inner, int64, void
from aiodev._backends.executor.intrinsics import pause
from aiodev._backends.executor.locking import lock, try_lock
from aiodev._backends.executor.structs import Lock

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
def lock_or_let_go(word: Lock, at_once: bool) -> int:
    """Take a lock, without the GIL if ``at_once`` or the lock is not to be had soon; gives what ``take_again`` needs."""
    if not at_once:
        for _ in range(LOCK_TRIES):
            if try_lock(word):
                return 0
            pause()
    saved = let_go()
    lock(word)
    return saved

"""Coalescing: several wake-ups as one, as network cards do with interrupts.

Who writes the descriptor of a loop wakes its thread. Where the process has one core, or the time of one, that takes it from the
worker, and the loop does for one finished operation what it could do for several: wake up, resume a task, and sleep again. So
there a worker that goes on with another operation holds on to the wake-up, if it knows the duration of that operation, as
helpers do (``helping.py``), and that ends soon. It wakes who sleeps before it does anything else; and at once where others were
seen to want the core as well, which might have it for long.
"""

from __future__ import annotations

from aiodev._backends.cpu.executor.crowding import is_crowded, is_shared
from aiodev._backends.cpu.structs import Device, Worker
from aiodev._backends.cpu.tuning import HELD
from aiodev._backends.executor.structs import Waker
from aiodev._backends.executor.wait_nodes import ring
from aiodev._native.compile import inner
from aiodev._native.intrinsics import now


@inner
def ring_in_time(device: Device, worker: Worker | None, bell: Waker | None, free: bool) -> None:
    """Ring a waker, if there is one, or have the worker hold on to it; ``worker`` is None for a helper, which has others wait.

    With ``free`` the worker has nothing else to do as yet: what is submitted by whom it wakes, and who may take its core, is
    for itself.
    """
    if bell is None:
        return
    if worker is None:
        ring(bell)
        return
    crowd, time = device.crowd, now()
    if crowd.coalesces != 0 and (is_shared(crowd) or not is_crowded(crowd, time)):
        if worker.bell is None:
            worker.bell = bell
            worker.bell_due = time + HELD
        elif worker.bell != bell:
            ring(bell)
    elif free and is_crowded(crowd, time):
        ring_alone(device, bell)
    else:
        ring(bell)


@inner
def ring_alone(device: Device, bell: Waker) -> None:
    """Ring a waker, and have no other worker be woken meanwhile."""
    device.spinners.fetch_add(1)
    ring(bell)
    device.spinners.fetch_add(-1)


@inner
def ring_held(worker: Worker | None) -> None:
    """Ring the waker that this worker holds on to, if there is one."""
    if worker is not None:
        bell = worker.bell
        worker.bell = None
        ring(bell)


@inner
def ring_ahead(worker: Worker | None, duration: int) -> None:
    """Ring it ahead of what takes so many ns, or 0 if that is not known, unless it is due behind that."""
    if worker is not None and worker.bell is not None and (duration == 0 or now() + duration > worker.bell_due):
        ring_held(worker)

"""Waiting for a kernel to be there, and for a launch that had to wait for it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

from aiodev._core.backend import FAULTS
from aiodev._core.completion import Completion
from aiodev._core.reactor import wait, wait_blocking
from aiodev._kernel.service import Loading

__all__ = ["GatedCompletion", "wait_for"]


class GatedCompletion(Completion):
    """The completion of a launch behind a gate: when the gate fails, that is the launch's own failure.

    The gate is an operation by itself, so without this the launch would report that something before it failed.
    """

    gate: int

    def __await__(self) -> Generator[Any, Any, None]:
        yield from wait(self.timeline, self.value)
        self._check()

    def synchronize_blocking(self, timeout: float | None = None) -> None:
        wait_blocking(self.timeline, self.value, timeout)
        self._check()

    def _check(self) -> None:
        if self.timeline.counters[FAULTS]:
            self.timeline.check(self.gate)
            self.timeline.check(self.value)


async def wait_for(loading: Loading) -> None:
    """Wait until ``loading`` has its outcome.

    Raises:
        CompileError: it failed.
    """
    if not loading.ready:
        import anyio  # neither is needed otherwise
        import anyio.to_thread

        done = threading.Event()
        loading.when_done(lambda error: done.set())
        # A limiter of its own: what waits here must not keep anybody else's blocking calls from their threads.
        await anyio.to_thread.run_sync(done.wait, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
    if loading.error is not None:
        raise loading.error

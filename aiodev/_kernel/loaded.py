"""Waiting for a kernel to be there, and for a launch that had to wait for it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from aiodev._core.backend import FAULTS
from aiodev._core.completion import Completion
from aiodev._core.errors import fresh
from aiodev._core.reactor import current_reactor, wait, wait_blocking
from aiodev._kernel.service import Loading

__all__ = ["GatedCompletion", "Loaded"]


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


class Loaded:
    """Waits until a kernel is there; cancellation stops the waiting, not the compilation.

    Raises:
        CompileError: it does not compile.
    """

    def __init__(self, loading: Loading) -> None:
        self._loading = loading

    def __await__(self) -> Generator[Any, Any, None]:
        loading = self._loading
        if not loading.ready and loading.error is None:
            yield from current_reactor().start(self)
        if loading.error is not None:
            raise fresh(loading.error)

    def start_soon(self, callback: Callable[[BaseException | None], object]) -> None:
        """Call back when the outcome is known: to a reactor this is like a backend that starts."""
        self._loading.when_done(callback)

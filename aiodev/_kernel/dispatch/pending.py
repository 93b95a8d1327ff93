"""Awaiting a pending kernel."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from aiodev._core.errors import fresh
from aiodev._core.waiting.reactor import current_reactor, others_first
from aiodev._kernel.compile.service import PendingKernel

__all__ = ["KernelWait"]


class KernelWait:
    """Waits until a kernel's code is there; cancellation stops the waiting, not the compilation.

    Raises:
        CompileError: the kernel does not compile.
    """

    def __init__(self, loading: PendingKernel) -> None:
        self._loading = loading

    def __await__(self) -> Generator[Any, Any, None]:
        loading = self._loading
        return others_first.__await__() if loading.ready else self._wait(loading)

    def _wait(self, loading: PendingKernel) -> Generator[Any, Any, None]:
        if loading.error is None:
            yield from current_reactor().start(self)
        if loading.error is not None:
            raise fresh(loading.error)

    def start_soon(self, callback: Callable[[BaseException | None], object]) -> None:
        """Call back when the outcome is known: to a reactor this is like a backend that starts."""
        self._loading.when_done(callback)

"""Compiling ahead: what a program launches is compiled again for baselines, for all processors of a kind."""

from __future__ import annotations

import queue
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from aiodev._kernel.compile.pool import WorkerPool
from aiodev._kernel.compile.service import service
from aiodev._kernel.compile.worker import Job

__all__ = ["AheadBackend", "compile_ahead", "recorded_kernels"]


class AheadBackend(Protocol):
    """A backend that can compile kernels for baselines."""

    def baselines(self) -> dict[str, Mapping[str, str]]: ...
    def write_ahead(self, folder: Path, baseline: str, kernels: Mapping[str, Path]) -> int: ...


@contextmanager
def recorded_kernels() -> Iterator[list[Job]]:
    """A list of the kernels that are compiled or loaded in the block, for :func:`compile_ahead`."""
    jobs: list[Job] = []
    service.recorded = jobs
    try:
        yield jobs
    finally:
        service.recorded = None


def compile_ahead(
    backend: AheadBackend,
    baseline: str,
    jobs: Sequence[Job],
    folder: Path,
    progress: Callable[[], object] = lambda: None,
) -> int:
    """Compile kernels for a baseline into ``folder``. Blocks. Returns how many compiled; those that fail are left out.

    Args:
        backend: the backend that the kernels were recorded for.
        baseline: one of ``backend.baselines()``.
        jobs: what :func:`recorded_kernels` gave.
        folder: for ``AIODEV_PREBUILT_DIR``; made if need be.
        progress: called after each kernel.

    Raises:
        OSError: ``folder`` cannot be written to.
    """
    pool = WorkerPool(environment=backend.baselines()[baseline])
    done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="aiodev-ahead-") as scratch:
        places = {spec.key: Path(scratch, str(number)) for number, (_, spec, _, _) in enumerate(jobs)}
        for name, spec, data, _ in {job[1].key: job for job in jobs}.values():
            pool.submit((name, spec, data, str(places[spec.key])), done.put)
        try:
            for _ in places:
                done.get()
                progress()
        finally:
            pool.stop()
        return backend.write_ahead(folder, baseline, places)

"""What can be wrong with a worker."""

from __future__ import annotations

from aiodev import AiodevError

__all__ = ["WorkerError"]


class WorkerError(AiodevError, RuntimeError):
    """A worker cannot take part: it lacks aiodev, has another version of it or no such device, or is not alone in its process.

    Attributes:
        worker: the worker's address.
        reason: what the matter is, and what to do.

    Example:
        >>> from aiodev.dask import WorkerError
        >>> print(WorkerError("tcp://10.0.0.7:40331", "aiodev is not installed there"))
        worker tcp://10.0.0.7:40331: aiodev is not installed there
    """

    def __init__(self, worker: str, reason: str) -> None:
        self.worker = worker
        self.reason = reason
        super().__init__(worker, reason)

    def __str__(self) -> str:
        return f"worker {self.worker}: {self.reason}"

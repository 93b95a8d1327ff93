"""The error of a full stream, in a module of its own: its base needs asyncio, which is half of what an import costs.

A program that has a full stream to handle has asyncio already; ``import aiodev`` alone does not need it.
"""

from __future__ import annotations

from asyncio import QueueFull

from aiodev._core.errors import AiodevError

__all__ = ["StreamFullError"]


class StreamFullError(AiodevError, QueueFull):
    """A stream with ``maxsize`` pending operations; ``await stream.drain(n)`` waits for room for n.

    Example:
        >>> async def main():
        ...     stream = aiodev.Stream("cpu", maxsize=1)
        ...     held = stream.wait_future(asyncio.sleep(0.01))
        ...     try:
        ...         stream.call(int)
        ...     except aiodev.StreamFullError as error:
        ...         await held
        ...         return error.maxsize, isinstance(error, asyncio.QueueFull)
        >>> asyncio.run(main())
        (1, True)
    """

    __module__ = "aiodev"

    def __init__(self, stream: object, maxsize: int) -> None:
        self.stream = str(stream)
        self.maxsize = maxsize
        super().__init__(self.stream, maxsize)

    def __str__(self) -> str:
        return (
            f"{self.stream} already has {self.maxsize} operations pending (its maxsize); "
            f"`await stream.drain(n)` waits for room for n"
        )

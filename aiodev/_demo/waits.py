"""The three ways to wait for a device from a coroutine that the demo compares.

The device does exactly the same work in all of them, over the same streams and events; only the host's wait differs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import aiodev
from aiodev._demo.pipeline import Wait

__all__ = ["WAYS", "Way", "awaiting"]


@dataclass(frozen=True, slots=True)
class Way:
    """A way to wait, and its name in the table."""

    name: str
    wait: Wait


async def blocking(completion: aiodev.Completion[None]) -> None:
    """(a) Block the loop, as a synchronise call inside a coroutine does; let others run once after each tile."""
    completion.synchronize_blocking()
    await asyncio.sleep(0)


async def threaded(completion: aiodev.Completion[None]) -> None:
    """(b) Block a thread of the loop's executor."""
    await asyncio.to_thread(completion.synchronize_blocking)


async def awaiting(completion: aiodev.Completion[None]) -> None:
    """(c) Await it."""
    await completion


WAYS = (
    Way("(a) blocking on the loop", blocking),
    Way("(b) asyncio.to_thread", threaded),
    Way("(c) aiodev", awaiting),
)

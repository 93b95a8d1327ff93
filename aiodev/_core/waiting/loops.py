"""Detects the event loop of this thread, without importing asyncio or trio."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


def running_loop() -> AbstractEventLoop | None:
    """The asyncio (or uvloop) loop that runs in this thread, or None.

    Where asyncio was not imported, none does. Its native part is asked, which is whole as soon as it can be found.
    """
    native = sys.modules.get("_asyncio")
    return None if native is None else native._get_running_loop()


def loop_runs_here() -> bool:
    """Whether an event loop runs in this thread: asyncio's, uvloop's or trio's."""
    if running_loop() is not None:
        return True
    trio = sys.modules.get("trio")
    if trio is None:
        return False
    try:
        trio.lowlevel.current_trio_token()
    except RuntimeError:
        return False
    return True


def running_task() -> str | None:
    """The name of the task that runs in this thread, or None: of asyncio or uvloop, or of trio."""
    loop = running_loop()
    if loop is not None:
        task = sys.modules["asyncio"].current_task(loop)
        return None if task is None else str(task.get_name())
    trio = sys.modules.get("trio")
    if trio is None:
        return None
    try:
        return str(trio.lowlevel.current_task().name)
    except RuntimeError:
        return None

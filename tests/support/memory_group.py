"""A control group whose processes may have so much memory, made for a test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quota_group import NoGroupError

from aiodev._core.control_groups import groups_of

__all__ = ["memory_group"]


@contextmanager
def memory_group(nbytes: int) -> Iterator[Path]:
    """Make a group below one that this process is in, of either version; at the end nobody may be left in it.

    Raises:
        NoGroupError: there are no control groups, or none can be made that takes limits.
    """
    reason = "there are no control groups here"
    for directory, version in groups_of("memory"):
        group = directory / f"aiodev-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError as error:
            reason = f"no control group can be made: {error}"
            continue
        try:
            limit = group / ("memory.max" if version == 2 else "memory.limit_in_bytes")
            if limit.is_file() and os.access(limit, os.W_OK):
                limit.write_text(str(nbytes))
                yield group
                return
            reason = f"{directory} gives its groups no limits"
        finally:
            group.rmdir()
    raise NoGroupError(reason)

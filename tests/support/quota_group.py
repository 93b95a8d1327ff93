"""A control group whose processes have a quota, made for a test or a measurement."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiodev._core.control_groups import groups_of

__all__ = ["NoGroupError", "QuotaGroup", "quota_group"]

_PERIOD = 100_000


class NoGroupError(Exception):
    """This process may make no group that takes quotas; says why."""


@dataclass(frozen=True)
class QuotaGroup:
    """A group, of either version; pickled for the process that is to join it."""

    directory: Path
    version: int

    @property
    def file(self) -> Path:
        """What its quota is written to."""
        return self.directory / ("cpu.max" if self.version == 2 else "cpu.cfs_quota_us")

    def limit(self, cores: float) -> None:
        """Give its processes so many cores, all of them together."""
        quota = round(cores * _PERIOD)
        self.file.write_text(f"{quota} {_PERIOD}" if self.version == 2 else str(quota))

    def join(self) -> None:
        """Have this process run in it from now on, with those that it starts."""
        (self.directory / "cgroup.procs").write_text(str(os.getpid()))


@contextmanager
def quota_group() -> Iterator[QuotaGroup]:
    """Make a group below one that this process is in; at the end nobody may be left in it.

    Raises:
        NoGroupError: there are no control groups, or none can be made that takes quotas.
    """
    reason = "there are no control groups here"
    for directory, version in groups_of("cpu"):
        group = QuotaGroup(directory / f"aiodev-test-{os.getpid()}", version)
        try:
            group.directory.mkdir()
        except OSError as error:
            reason = f"no control group can be made: {error}"
            continue
        try:
            if group.file.is_file() and os.access(group.file, os.W_OK):
                yield group
                return
            reason = f"{directory} gives its groups no quotas"
        finally:
            group.directory.rmdir()
    raise NoGroupError(reason)

"""Cores that this process may really use: those of its affinity, as far as the CPU quotas of its control groups go.

A quota lets a group run for so much time in each period (``cpu.max``, or ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us``, most
often of 100 ms). A group that has used its time up is *throttled*: all its threads stand still until the period is over. So
more workers than the quota has cores do not get more done, but all of it in the first part of each period; and who spins
spends the time of those who work. Hence:

1.  There are as many workers as the affinity has cores, and at most as many as the least quota, rounded up.
2.  Who spins takes time from those who work, unless there are two whole cores: one for who waits, one for who works. Of a
    quota that is the part before the point: with 1.5 cores two threads that stay awake are throttled in every period. So there
    a thread spins for no longer than it would cost to sleep and to be woken, which is time of the quota, too. Then it never
    spends more than twice what it has to, whatever comes; and what is done within a few µs, it has for less than by sleeping.
3.  What a group uses besides, by other threads and processes, is not known here. So the same holds for a while after the
    group was throttled, and each time that this comes again, for longer.
4.  On a single core nobody spins: the other side could not run. Nor is a worker woken while the thread that submits has work
    to do, which would hand over the core each time: it is always *crowded* (:mod:`aiodev._backends.cpu.executor.crowding`).

A quota may change while the process runs: an orchestrator resizes a container. So a thread looks once a second, and tells
those who follow. What they adapt is for how long they spin, and how many workers run, of those that there were at the start.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from aiodev._core.at_fork import first_in_child
from aiodev._core.control_groups import groups_of, read_file
from aiodev._core.tuning import FIRST_REST, LONGEST_REST, WATCH_SECONDS

__all__ = ["CoreWatch", "Quota", "Spin", "UsableCores", "allowed_cores", "core_watch", "usable_cores"]

logger = logging.getLogger("aiodev")

_ROOT = Path("/")
#: Microseconds of a period where the file does not say.
_PERIOD = 100_000


class Spin(Enum):
    """For how long threads may wait awake."""

    NONE = 0
    SHORT = 1  #: for what it costs to sleep and be woken
    FULL = 2


class Quota(NamedTuple):
    """What a control group may use: seconds of CPU time in a second, and the file that says so."""

    cores: float
    file: str


@dataclass(frozen=True, slots=True)
class UsableCores:
    """What of the machine's cores is this process's."""

    allowed: int  #: cores that its affinity has
    quota: Quota | None = None  #: the least of its control groups
    throttled: int = 0  #: periods in which those groups were throttled, ever

    @property
    def count(self) -> int:
        """How many threads can run at once, of which the last one perhaps not all the time; at least 1."""
        return self.allowed if self.quota is None else max(1, min(self.allowed, _rounded_up(self.quota.cores)))

    @property
    def whole(self) -> int:
        """How many can run all the time."""
        return self.allowed if self.quota is None else min(self.allowed, int(self.quota.cores))

    def __str__(self) -> str:
        affinity = f"{self.allowed} core{'' if self.allowed == 1 else 's'} by affinity"
        if self.quota is None:
            return f"{affinity}, no quota"
        return f"{affinity}, quota of {self.quota.cores:g} core{'' if self.quota.cores == 1 else 's'} in {self.quota.file}"


def allowed_cores() -> tuple[int, ...]:
    """Numbers of the cores that this process may run on now, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def usable_cores(root: Path = _ROOT) -> UsableCores:
    """What this process may use now; reads some system files below ``root``."""
    least, throttled = None, 0
    for directory, version in groups_of("cpu", root):
        quota = _quota_v2(directory) if version == 2 else _quota_v1(directory)
        if quota is not None:
            throttled += _throttled(directory)
            if least is None or quota.cores < least.cores:
                least = quota
    return UsableCores(len(allowed_cores()), least, throttled)


def _quota_v2(directory: Path) -> Quota | None:
    """``cpu.max``: "150000 100000", or "max 100000" where there is none."""
    file = directory / "cpu.max"
    time, _, period = read_file(file).strip().partition(" ")
    return _quota(file, time, period or str(_PERIOD))


def _quota_v1(directory: Path) -> Quota | None:
    """Two files; the quota is -1 where there is none."""
    file = directory / "cpu.cfs_quota_us"
    return _quota(file, read_file(file).strip(), read_file(directory / "cpu.cfs_period_us").strip() or str(_PERIOD))


def _quota(file: Path, time: str, period: str) -> Quota | None:
    if not (_is_number(time) and _is_number(period) and int(time) and int(period)):
        return None
    return Quota(int(time) / int(period), str(file))


def _throttled(directory: Path) -> int:
    for line in read_file(directory / "cpu.stat").splitlines():
        name, _, number = line.partition(" ")
        if name == "nr_throttled" and _is_number(number):
            return int(number)
    return 0


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def _rounded_up(number: float) -> int:
    return -int(-number // 1)


class CoreWatch:
    """Knows what cores are usable, looks again from time to time, and says so to those who follow.

    Args:
        read: what reads it.
        clock: seconds.
    """

    def __init__(
        self, read: Callable[[], UsableCores] = usable_cores, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._clock = read, clock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._followers: list[Callable[[Spin], object]] = []
        self._in_children: list[Callable[[Spin], object]] = []
        self._rest, self._rests_until = FIRST_REST, float("-inf")
        self._cores: UsableCores | None = None
        self.spin = Spin.FULL  #: for how long threads may wait awake

    @property
    def cores(self) -> UsableCores:
        """What was found at the last look; the first one is now. Reads some system files."""
        return self.look() if self._cores is None else self._cores

    def follow(self, follower: Callable[[Spin], object], *, in_children: bool = False) -> None:
        """Call ``follower(spin)`` now, and when that or the number of cores changes; from any thread.

        It must be short, and not fail. ``in_children``: in forked children, too; what speaks to native threads must not be.
        """
        with self._lock:
            self._followers.append(follower)
            if in_children:
                self._in_children.append(follower)
            follower(self.spin)

    def leave(self, follower: Callable[[Spin], object]) -> None:
        """Call it no more, if it was called at all."""
        with self._lock:
            for followers in (self._followers, self._in_children):
                if follower in followers:
                    followers.remove(follower)

    def look(self) -> UsableCores:
        """Look, and tell what has changed."""
        cores = self._read()
        with self._lock:
            before, self._cores = self._cores, cores
            spin = self._judge(before, cores)
            if spin != self.spin or (before is not None and cores.count != before.count):
                self.spin = spin
                for follower in self._followers:
                    follower(spin)
        return cores

    def _judge(self, before: UsableCores | None, found: UsableCores) -> Spin:
        now = self._clock()
        if before is not None and found.throttled > before.throttled:
            tried = now - self._rests_until  # seconds since the last rest
            if tried >= 0:
                self._rest = min(LONGEST_REST, 2 * self._rest) if tried < self._rest else FIRST_REST
            self._rests_until = now + self._rest
        if found.allowed == 1:
            return Spin.NONE
        return Spin.FULL if found.whole > 1 and now >= self._rests_until else Spin.SHORT

    def start(self) -> None:
        """Look now, and from now on in a thread, where the system is one with control groups; a second call only looks."""
        self.look()
        with self._lock:
            if self._thread is None and sys.platform == "linux":
                thread = threading.Thread(target=self._run, name="aiodev-cpu-watch", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    logger.warning("no thread can be started that would see it if this process's CPU quota changes")
                    return
                self._thread = thread

    def _run(self) -> None:
        while True:
            time.sleep(WATCH_SECONDS)
            try:
                self.look()
            except Exception:  # it is no reason to stop looking
                logger.exception("the CPU quota could not be read")

    def forget_after_fork(self) -> None:
        """In a forked child the thread is gone, which its backends start anew, and so are the workers of the parent's."""
        self._lock = threading.Lock()
        self._thread = None
        self._followers = self._in_children.copy()


#: The process's watch.
core_watch = CoreWatch()
first_in_child(core_watch.forget_after_fork)

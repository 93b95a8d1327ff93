"""How many cores are usable, by affinity and quotas, in trees of files that are made up; and who is told when that changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from quota_group import NoGroupError, QuotaGroup, quota_group

from aiodev._core import usable_cores as module
from aiodev._core.usable_cores import CoreWatch, Quota, Spin, UsableCores, allowed_cores, usable_cores


class System:
    """A file system in which this process is in the group ``/a/b`` of one version."""

    def __init__(self, root: Path, version: int) -> None:
        self.root, self.version = root, version
        self.top = root / "sys" / "fs" / "cgroup"
        own = root / "proc" / "self"
        own.mkdir(parents=True)
        (own / "cgroup").write_text("0::/a/b\n" if version == 2 else "3:cpu:/a/b\n")
        kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,cpu"
        (own / "mountinfo").write_text(f"25 30 0:26 / /sys/fs/cgroup rw - {kind}\n")
        (self.top / "a" / "b").mkdir(parents=True)

    def limit(self, group: str, quota: str, period: str = "100000", throttled: int = 0) -> str:
        """Write a group's quota; returns the file that has it."""
        directory = self.top / group
        if self.version == 2:
            file = directory / "cpu.max"
            file.write_text(f"{'max' if quota == '-1' else quota} {period}\n")
        else:
            file = directory / "cpu.cfs_quota_us"
            file.write_text(f"{quota}\n")
            (directory / "cpu.cfs_period_us").write_text(f"{period}\n")
        (directory / "cpu.stat").write_text(f"nr_periods 9\nnr_throttled {throttled}\nthrottled_time 1\n")
        return str(file)


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def system(request: pytest.FixtureRequest, tmp_path: Path) -> System:
    """A made-up system with control groups of either version."""
    return System(tmp_path, request.param)


@pytest.fixture(autouse=True)
def eight_cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An affinity of eight cores, but for tests of the machine."""
    if "group" not in request.fixturenames:
        monkeypatch.setattr(module, "allowed_cores", lambda: tuple(range(8)))


def test_a_quota_of_the_own_group(system: System) -> None:
    """The quota is the time over the period, and says which file has it."""
    file = system.limit("a/b", "75000", "50000")
    assert usable_cores(system.root).quota == Quota(1.5, file)


def test_the_least_quota_counts(system: System) -> None:
    """Of the group and those above it, the one with the least is the limit."""
    system.limit("a/b", "400000")
    file = system.limit("a", "300000")
    system.limit("", "500000")
    assert usable_cores(system.root).quota == Quota(3.0, file)


@pytest.mark.parametrize(
    ("quota", "count", "whole"),
    [(1000, 1, 0), (50000, 1, 0), (100000, 1, 1), (100001, 2, 1), (150000, 2, 1), (200000, 2, 2), (9900000, 8, 8)],
)
def test_fractions_are_rounded_up(quota: int, count: int, whole: int, system: System) -> None:
    """As many workers as can run at once, at least one and no more than the affinity has; fewer run all the time."""
    system.limit("a/b", str(quota))
    usable = usable_cores(system.root)
    assert (usable.count, usable.whole) == (count, whole)


def test_without_a_quota_the_affinity_counts(system: System) -> None:
    """``max``, or -1, is no quota."""
    system.limit("a/b", "-1")
    usable = usable_cores(system.root)
    assert usable == UsableCores(8)
    assert (usable.count, usable.whole, str(usable)) == (8, 8, "8 cores by affinity, no quota")


@pytest.mark.parametrize(
    "text", ["", "\n", "max", "max 100000", "0 100000", "100000 0", "-5 100000", "1e5 100000", "many few", "²", "9" * 400]
)
def test_what_is_no_quota_limits_nothing(text: str, tmp_path: Path) -> None:
    """A file that is empty, malformed, or says that there is none does not count."""
    system = System(tmp_path, 2)
    (system.top / "a" / "b" / "cpu.max").write_text(text)
    assert usable_cores(system.root) == UsableCores(8)


def test_a_quota_without_a_period(tmp_path: Path) -> None:
    """The period is 100 ms where the file has none."""
    system = System(tmp_path, 2)
    (system.top / "a" / "cpu.max").write_text("250000\n")
    assert usable_cores(system.root).count == 3


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    """The affinity alone counts where nothing else is told."""
    assert usable_cores(tmp_path) == UsableCores(8)


def test_it_says_what_was_found(system: System) -> None:
    """In words: cores, quota and its file."""
    file = system.limit("a", "150000")
    assert str(usable_cores(system.root)) == f"8 cores by affinity, quota of 1.5 cores in {file}"


def test_throttled_periods_are_counted(system: System) -> None:
    """Those of all groups that have a quota, together."""
    system.limit("a/b", "100000", throttled=3)
    system.limit("a", "300000", throttled=4)
    system.limit("", "-1", throttled=100)
    assert usable_cores(system.root).throttled == 7


class Watch(CoreWatch):
    """A watch of a system and a clock that tests have in their hands."""

    def __init__(self) -> None:
        self.now, self.found, self.told = 100.0, UsableCores(8), list[Spin]()
        super().__init__(lambda: self.found, lambda: self.now)
        self.follow(self.told.append)
        self.look()

    def throttle(self, quota: float = 4.0) -> Spin:
        """The group is throttled once more; for how long threads may spin then."""
        self.found = UsableCores(8, Quota(quota, "file"), self.found.throttled + 1)
        self.look()
        return self.spin

    def after(self, seconds: float) -> Spin:
        """For how long threads may spin some time later."""
        self.now += seconds
        self.look()
        return self.spin


def test_a_watch_follows_a_quota() -> None:
    """Followers are told when there are fewer cores or more, and whether those suffice for spinning."""
    watch = Watch()
    for quota in (4.0, 1.5, 1.0, 0.5, 2.0):
        watch.found = UsableCores(8, Quota(quota, "file"))
        watch.look()
        assert watch.cores == watch.found
    assert watch.told == [Spin.FULL, Spin.FULL, Spin.SHORT, Spin.SHORT, Spin.FULL]


def test_who_leaves_is_told_no_more() -> None:
    """And may leave twice."""
    watch = Watch()
    watch.leave(watch.told.append)
    watch.leave(watch.told.append)
    watch.found = UsableCores(1)
    watch.look()
    assert watch.told == [Spin.FULL] and watch.spin is Spin.NONE


def test_a_child_tells_no_backend_of_its_parents() -> None:
    """Whose workers it lacks: one of them may have held a lock for good that telling it takes."""
    watch, in_children = Watch(), list[Spin]()
    watch.follow(in_children.append, in_children=True)
    watch.forget_after_fork()
    watch.found = UsableCores(1)
    watch.look()
    assert watch.told == [Spin.FULL] and in_children == [Spin.FULL, Spin.NONE]


def test_nobody_spins_on_one_core() -> None:
    """With or without a quota."""
    watch = Watch()
    watch.found = UsableCores(1)
    watch.look()
    assert watch.told == [Spin.FULL, Spin.NONE]


def test_threads_spin_shortly_for_a_while_after_throttling() -> None:
    """Two seconds, from the last time that it was seen."""
    watch = Watch()
    assert watch.throttle() is Spin.SHORT
    assert watch.after(1.5) is Spin.SHORT
    assert watch.throttle() is Spin.SHORT
    assert watch.after(1.5) is Spin.SHORT
    assert watch.after(0.6) is Spin.FULL


def test_throttling_that_comes_again_is_given_more_time() -> None:
    """Each rest after a short time of spinning is twice as long, up to about two minutes; a long calm makes it short again."""
    watch, rests = Watch(), []
    for _ in range(8):
        assert watch.throttle() is Spin.SHORT
        rests.append(next(seconds for seconds in range(1, 1000) if watch.after(1) is Spin.FULL))
    assert rests == [2, 4, 8, 16, 32, 64, 128, 128]
    assert watch.after(200) is Spin.FULL
    assert watch.throttle() is Spin.SHORT
    assert watch.after(2) is Spin.FULL


def test_what_was_throttled_before_counts_for_nothing() -> None:
    """The first look only notes the count."""
    watch = CoreWatch(lambda: UsableCores(8, Quota(4.0, "file"), 1000))
    watch.look()
    assert watch.spin is Spin.FULL


# In a control group that the test makes


@pytest.fixture
def group() -> Iterator[QuotaGroup]:
    """A group of the machine that takes quotas and processes, made for the test."""
    try:
        with quota_group() as made:
            yield made
    except NoGroupError as reason:
        pytest.skip(str(reason))


_PROGRAM = """
import os, sys
with open(sys.argv[1], "w") as group:
    group.write(str(os.getpid()))
import aiodev
from aiodev._core.usable_cores import core_watch
aiodev.init_blocking("cpu")
executor = aiodev.get_backend("cpu").executor
workers = executor.thread_count if executor.kind == "native" else 1  # the portable one has at least two
print(workers, core_watch.spin.name, aiodev.get_device_properties("cpu").extra["cpu_quota"], flush=True)
sys.stdin.readline()
core_watch.look()
print(aiodev.get_device_properties("cpu").extra["cpu_quota"], flush=True)
"""


@pytest.mark.skipif(len(allowed_cores()) < 2, reason="one core")
def test_a_quota_of_one_core(group: QuotaGroup) -> None:
    """In a group with a quota of one core there is one worker, and threads spin shortly; a quota that changes is seen."""
    group.limit(1.0)
    environment = {name: text for name, text in os.environ.items() if "SPIN" not in name} | {"AIODEV_CPU_THREADS": ""}
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(group.directory / "cgroup.procs")],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        assert program.stdin is not None and program.stdout is not None
        assert program.stdout.readline().split() == ["1", "SHORT", "1.0"]
        group.limit(4.0)
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline().strip() == "4.0"
    assert program.returncode == 0

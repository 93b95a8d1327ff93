"""Which control groups a process is in, from what the system tells it, in trees of files that are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiodev._core.control_groups import groups_of

V2 = "25 30 0:26 {mounted} {place} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "33 30 0:30 {mounted} {place} rw,nosuid - cgroup cgroup rw,cpu,cpuacct"
PLACE_V2, PLACE_V1 = "/sys/fs/cgroup", "/sys/fs/cgroup/cpu,cpuacct"


def system(root: Path, cgroup: str, *mounts: str, groups: tuple[str, ...] = ()) -> Path:
    """A file system with what ``/proc/self`` says, and some directories of groups."""
    own = root / "proc" / "self"
    own.mkdir(parents=True)
    (own / "cgroup").write_text(cgroup)
    noise = "22 30 0:21 / /proc rw - proc proc rw", "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755", "", "torn"
    (own / "mountinfo").write_text("\n".join([*noise, *mounts]) + "\n")
    for group in groups:
        (root / group.lstrip("/")).mkdir(parents=True, exist_ok=True)
    return root


def found(root: Path, controller: str = "cpu") -> list[tuple[str, int]]:
    """What is found there, without the place of the tree."""
    return [("/" + str(path.relative_to(root)), version) for path, version in groups_of(controller, root)]


def test_a_group_and_those_above_it(tmp_path: Path) -> None:
    """On a host, a process is in its group and in each one up to the root of the tree."""
    root = system(tmp_path, "0::/a.slice/b.service\n", V2.format(mounted="/", place=PLACE_V2),
                  groups=(f"{PLACE_V2}/a.slice/b.service",))  # fmt: skip
    assert found(root) == [(f"{PLACE_V2}/a.slice/b.service", 2), (f"{PLACE_V2}/a.slice", 2), (PLACE_V2, 2)]


def test_version_1_by_its_controller(tmp_path: Path) -> None:
    """Of version 1 the tree counts in which the controller is, mounted together with others or not."""
    root = system(tmp_path, "4:memory:/other\n3:cpu,cpuacct:/a\n", V1.format(mounted="/", place=PLACE_V1),
                  groups=(f"{PLACE_V1}/a",))  # fmt: skip
    assert found(root) == [(f"{PLACE_V1}/a", 1), (PLACE_V1, 1)]
    assert found(root, "memory") == []


def test_both_versions_at_once(tmp_path: Path) -> None:
    """A system that has both mounted has groups of both."""
    mounts = V1.format(mounted="/", place=PLACE_V1), V2.format(mounted="/", place="/sys/fs/cgroup/unified")
    root = system(tmp_path, "3:cpu:/\n0::/\n", *mounts, groups=(PLACE_V1, "/sys/fs/cgroup/unified"))
    assert found(root) == [(PLACE_V1, 1), ("/sys/fs/cgroup/unified", 2)]


@pytest.mark.parametrize(
    ("path", "mounted"),
    [
        ("/", "/"),  # a namespace of its own
        ("/docker/0ebd13", "/docker/0ebd13"),  # none: of the host's tree its part is mounted
        ("/docker/0ebd13", "/"),  # paths of the host, though its tree is not there
        ("/", "/../../kubepods"),  # mounted in another namespace
        ("/../other", "/"),  # moved out of the namespace
    ],
)
def test_a_containers_group_is_at_the_root(path: str, mounted: str, tmp_path: Path) -> None:
    """However a container is made, its group is where the file system is mounted."""
    root = system(tmp_path, f"0::{path}\n", V2.format(mounted=mounted, place=PLACE_V2), groups=(PLACE_V2,))
    assert found(root) == [(PLACE_V2, 2)]


def test_groups_inside_a_container(tmp_path: Path) -> None:
    """Of a part of the tree that is mounted, the groups below its root are found, too."""
    mount = V2.format(mounted="/docker/0ebd13", place=PLACE_V2)
    root = system(tmp_path, "0::/docker/0ebd13/inner\n", mount, groups=(f"{PLACE_V2}/inner",))
    assert found(root) == [(f"{PLACE_V2}/inner", 2), (PLACE_V2, 2)]


def test_a_place_with_blanks(tmp_path: Path) -> None:
    """Octal numbers in a mount's place are characters."""
    root = system(tmp_path, "0::/\n", V2.format(mounted="/", place=r"/my\040groups"), groups=("/my groups",))
    assert found(root) == [("/my groups", 2)]


@pytest.mark.parametrize("cgroup", ["", "nonsense\n", "0::\n", "0::relative\n", "5:pids:/a\n", "::\n\n:"])
def test_what_says_nothing_gives_none(cgroup: str, tmp_path: Path) -> None:
    """A process that is told of no group of the controller has none, however that is written."""
    mounts = V1.format(mounted="/", place=PLACE_V1), V2.format(mounted="/", place=PLACE_V2)
    assert found(system(tmp_path, cgroup, *mounts, groups=(PLACE_V1,))) == []


def test_a_system_without_proc_has_none(tmp_path: Path) -> None:
    """Where nothing is told there are no groups."""
    assert groups_of("cpu", tmp_path) == []

"""Control groups (cgroups) of this process: where the limits are that a container or a service manager has set for it.

A group limits all that run in it and in the groups below, so that a process has the limits of its own group and of each above.
How many of those it sees depends on how its container was made:

-   On the host, and in a container without a namespace of its own, ``/proc/self/cgroup`` says where its group is in the whole
    tree. What is mounted may be the tree, or only the part of it that begins with the container's group (the fourth field of a
    line of ``mountinfo``).
-   In a cgroup namespace paths begin at the container's group: ``/`` is that group, and those above are out of sight.
-   Where the two do not fit together, since the file system was mounted by another namespace than the one that the paths are
    told for, the root of what is mounted is taken: in a container, that is its group.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

__all__ = ["groups_of", "read_file"]

_ROOT = Path("/")
_SELF = Path("proc/self")


def groups_of(controller: str, root: Path = _ROOT) -> list[tuple[Path, int]]:
    """(directory, version 1 or 2 of the interface) of each group that this process is in, its own first.

    Of version 1 those of ``controller``; of version 2 all, whether the controller is there or not: its files tell. Reads two
    files of ``/proc``; empty where there are no control groups.

    Args:
        controller: ``cpu``, ``memory``.
        root: where the file system begins that is looked at.
    """
    paths = _paths(controller, root)
    groups: list[tuple[Path, int]] = []
    for version, mounted, place in _mounts(controller, root):
        path = paths.get(version)
        if path is None:
            continue
        top = root / place.relative_to("/")
        own = top / path.relative_to(mounted) if path.is_relative_to(mounted) else top
        if ".." in own.parts or not os.path.isdir(own):  # False, too, where it may not look
            own = top
        for directory in (own, *own.parents):
            if (directory, version) not in groups:
                groups.append((directory, version))
            if directory == top:
                break
    return groups


def read_file(path: Path) -> str:
    """A small system file's text; empty where the system does not have it."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _paths(controller: str, root: Path) -> dict[int, PurePosixPath]:
    """Where this process's group is in the tree of each version."""
    paths = {}
    for line in read_file(root / _SELF / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not path.startswith("/"):
            continue
        if number == "0" and not controllers:
            paths[2] = PurePosixPath(path)
        elif controller in controllers.split(","):
            paths[1] = PurePosixPath(path)
    return paths


def _mounts(controller: str, root: Path) -> Iterator[tuple[int, PurePosixPath, PurePosixPath]]:
    """(version, which part of the tree, where) of what is mounted."""
    for line in read_file(root / _SELF / "mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        version = {"cgroup2": 2, "cgroup": 1}.get(kind[0], 0)
        if version == 2 or (version == 1 and controller in kind[2].split(",")):
            mounted, place = (PurePosixPath(_unescaped(field)) for field in fields[3:5])
            if place.is_absolute():
                yield version, mounted, place


def _unescaped(field: str) -> str:
    """A field of ``mountinfo``, which writes blanks and backslashes as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)

"""Leak checks: what a block of code leaves behind in threads, descriptors, and whatever a test counts."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["LeakError", "check_leaks"]

_DESCRIPTORS = Path("/proc/self/fd")


class LeakError(AssertionError):
    """Something is left behind; ``leaks`` has a line for each.

    Example:
        >>> from aiodev.testing import LeakError, check_leaks
        >>> stays = []
        >>> try:
        ...     with check_leaks(probes={"stays": lambda: len(stays)}, timeout=0):
        ...         stays.append(1)
        ... except LeakError as error:
        ...     print(error.leaks)
        ['stays: 1, before 0']
    """

    def __init__(self, leaks: list[str]) -> None:
        self.leaks = leaks
        super().__init__(leaks)

    def __str__(self) -> str:
        return "left behind: " + "; ".join(self.leaks)


#: How often it is looked whether a descriptor is still there, and the seconds before each look. Larger: leaks are told of
#: later; smaller: a file that is being read counts as left behind.
LOOKS, PAUSE = 10, 0.01


@contextmanager
def check_leaks(
    *, probes: Mapping[str, Callable[[], int]] | None = None, allow: tuple[str, ...] = ("aiodev-cpu",),
    timeout: float = 2.0,
) -> Iterator[None]:  # fmt: skip
    """Raise LeakError when the block leaves threads, descriptors or counted things behind.

    What is about to end gets ``timeout`` seconds for it. Descriptors are looked at where the system shows them (Linux).

    Args:
        probes: further things to count by name, such as allocated bytes or parked waits; each must not have grown.
        allow: threads whose names start so may stay: a backend's workers live as long as the process.
        timeout: seconds.

    Example:
        >>> import os
        >>> from aiodev.testing import check_leaks
        >>> with check_leaks():
        ...     reading, writing = os.pipe()
        ...     os.close(reading), os.close(writing)
        (None, None)
    """
    probes = probes or {}
    gc.collect()
    threads, descriptors = set(threading.enumerate()), _descriptors()
    counts = {name: probe() for name, probe in probes.items()}
    yield
    deadline = time.monotonic() + timeout
    for thread in threading.enumerate():
        if thread not in threads and not thread.name.startswith(allow) and thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))
    gc.collect()
    leaks = [
        f"thread {thread.name!r}"
        for thread in threading.enumerate()
        if thread not in threads and not thread.name.startswith(allow)
    ]
    opened = {number: what for number, what in _descriptors().items() if number not in descriptors}
    for _ in range(LOOKS):  # a thread that goes on may have had a file open for a moment
        if opened:
            time.sleep(PAUSE)
            now = _descriptors()
            opened = {number: what for number, what in opened.items() if now.get(number) == what}
    leaks += [f"descriptor {number} ({what})" for number, what in opened.items()]
    for name, before in counts.items():
        after = probes[name]()
        if after > before:
            leaks.append(f"{name}: {after}, before {before}")
    if leaks:
        raise LeakError(leaks)


def _descriptors() -> dict[int, str]:
    """Open descriptors and what they are."""
    targets = {}
    for entry in sorted(_DESCRIPTORS.iterdir()) if _DESCRIPTORS.is_dir() else ():
        try:
            target = os.readlink(entry)
        except FileNotFoundError:
            continue  # the one that was opened to list the directory
        targets[int(entry.name)] = target
    return targets

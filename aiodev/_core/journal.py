"""Journal of a stream: what each operation was, and where it was submitted. Kept in debug mode, for reports about memory.

A buffer knows the number of the last operation on each timeline that used it. The journal tells which kernel, copy or fill that
was, and the line that submitted it, long after it is done. It forgets the oldest of a timeline's operations.
"""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiodev._core import callsites
from aiodev._core.streams import trace
from aiodev._core.tuning import OPERATIONS_REMEMBERED

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline

__all__ = ["attach", "describe"]

_entries: weakref.WeakKeyDictionary[Timeline, OrderedDict[int, tuple[str, int]]] = weakref.WeakKeyDictionary()


def attach(stream: trace.Traced) -> None:
    """Note what is submitted to ``stream`` from now on."""
    timeline = stream.timeline
    stream._launch = _noted(timeline, stream._launch, _name_of_kernel)
    stream._copy = _noted(timeline, stream._copy, lambda args: ("a copy", callsites.outside(sys._getframe(2))))
    stream._fill = _noted(timeline, stream._fill, lambda args: ("a fill", callsites.outside(sys._getframe(2))))


def describe(timeline: Timeline, value: int) -> str | None:
    """Operation ``value`` of a timeline, in words; None where it is not known."""
    entries = _entries.get(timeline)
    if entries is None or value not in entries:
        return None
    name, site = entries[value]
    return f"{name}, submitted at {callsites.describe_site(site)}"


def _name_of_kernel(args: tuple[Any, ...]) -> tuple[str, int]:
    entry, _, _, site = args
    return f"kernel {trace.kernel_name(entry)}", site


def _noted(
    timeline: Timeline, submit: Callable[..., int], name: Callable[[tuple[Any, ...]], tuple[str, int]]
) -> Callable[..., int]:
    entries = _entries.setdefault(timeline, OrderedDict())

    def submit_noted(*args: Any) -> int:
        value = submit(*args)
        entries[value] = name(args)
        while len(entries) > OPERATIONS_REMEMBERED:
            entries.popitem(last=False)
        return value

    return submit_noted

"""Atomic updates of one element of an array: no other index of the launch can come between.

All return what was there before. The order in which indices arrive is not defined, so a sum of floats may differ in its last
bits from run to run. Elements are integers or floats; ``index`` is an int, or a tuple of ints.
"""

from __future__ import annotations

import threading
from typing import Any

from aiodev._core.at_fork import first_in_child

__all__ = ["atomic_add", "atomic_cas", "atomic_max", "atomic_min"]

Index = int | tuple[int, ...]

#: Makes one update of what is several steps in the interpreter; compiled code has an instruction for it.
_update = threading.Lock()


def _renew_after_fork() -> None:
    """The thread that held it may not be there."""
    global _update
    _update = threading.Lock()


first_in_child(_renew_after_fork)


def atomic_add(array: Any, index: Index, value: Any) -> Any:
    """Add ``value`` to ``array[index]``; returns what was there.

    Example:
        >>> import numpy
        >>> from aiodev import lang
        >>> counts = numpy.zeros(2, "i8")
        >>> int(lang.atomic_add(counts, 1, 5)), counts.tolist()
        (0, [0, 5])
    """
    with _update:
        old = array[index]
        array[index] = old + value
    return old


def atomic_min(array: Any, index: Index, value: Any) -> Any:
    """Lower ``array[index]`` to ``value`` if that is less; a NaN counts as absent. Returns what was there.

    Example:
        >>> import numpy
        >>> from aiodev import lang
        >>> x = numpy.array([5, 9])
        >>> int(lang.atomic_min(x, 0, 3)), x.tolist()
        (5, [3, 9])
    """
    with _update:
        old = array[index]
        if value < old or old != old:
            array[index] = value
    return old


def atomic_max(array: Any, index: Index, value: Any) -> Any:
    """Raise ``array[index]`` to ``value`` if that is more; a NaN counts as absent. Returns what was there.

    Example:
        >>> import numpy
        >>> from aiodev import lang
        >>> x = numpy.array([5, 9])
        >>> int(lang.atomic_max(x, 0, 7)), x.tolist()
        (5, [7, 9])
    """
    with _update:
        old = array[index]
        if value > old or old != old:
            array[index] = value
    return old


def atomic_cas(array: Any, index: Index, expected: Any, value: Any) -> Any:
    """Write ``value`` to ``array[index]`` if ``expected`` is there; returns what was there.

    It was written exactly when the result equals ``expected``. Floats are compared by their bits.

    Example:
        >>> import numpy
        >>> from aiodev import lang
        >>> x = numpy.array([5, 9])
        >>> int(lang.atomic_cas(x, 0, 5, 1)), int(lang.atomic_cas(x, 1, 5, 1)), x.tolist()
        (5, 9, [1, 9])
    """
    with _update:
        old = array[index]
        if old == expected:
            array[index] = value
    return old

"""Where executors have their launch for native code: that calls it with words, and makes no objects of Python's for it."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["launch_codes"]

#: By an executor's ``launch``, the very object, the address of an entry (``aiodev._native.compile.entry``) that takes the same.
launch_codes: dict[Callable[..., int], int] = {}

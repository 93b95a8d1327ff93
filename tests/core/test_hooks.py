"""Functions that a layer calls and one above it provides."""

from __future__ import annotations

import pytest

from aiodev._core.hooks import Hook


def test_what_is_provided_is_called() -> None:
    """By whoever provides it, as a decorator; nothing stands in front of it."""
    double: Hook[[int], int] = Hook("above")

    @double.provide
    def twice(number: int) -> int:
        return 2 * number

    assert double.call is twice
    assert double.call(4) == 8


def test_what_nobody_provides_says_who_should() -> None:
    """The error names the module."""
    missing: Hook[[], None] = Hook("aiodev._kernel.dispatch.strided")
    with pytest.raises(RuntimeError, match=r"aiodev\._kernel\.dispatch\.strided provides this"):
        missing.call()

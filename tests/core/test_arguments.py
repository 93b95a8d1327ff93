"""Checks of arguments: what they let through, and what they say of the rest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from aiodev._core import arguments


class Unprintable:
    def __repr__(self) -> str:
        raise OSError("not to be shown")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (3, "int 3"),
        ("a\nb", r"str 'a\nb'"),
        (np.zeros((2, 2)), "ndarray array([[0., 0.], [0., 0.]])"),
        (10**10_000, "int"),
    ],
    ids=["None", "int", "str", "array", "digits"],
)
def test_values_are_shown_with_their_type(value: Any, text: str) -> None:
    """In one line."""
    assert arguments.shown(value) == text


@pytest.mark.parametrize("value", [Unprintable(), "x" * 1000, list(range(1000)), np.arange(1000)])
def test_any_value_is_shown(value: Any) -> None:
    """Shortly, whatever its own repr does."""
    found = arguments.shown(value)
    assert type(value).__name__ in found and len(found) < 120


def test_integers_of_any_type_are_taken() -> None:
    """As Python's own indices are."""
    assert arguments.integer("f", "n", np.uint8(3), least=3, most=3) == 3


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (2.0, TypeError, r"f: argument n: expected an integer, got float 2\.0"),
        (-1, ValueError, r"f: argument n: expected an integer from 0 to 9, got int -1"),
        (10, ValueError, r"f: argument n: expected an integer from 0 to 9, got int 10"),
    ],
)
def test_integers_out_of_range_are_refused(value: Any, kind: type[Exception], message: str) -> None:
    """With the range that there is."""
    with pytest.raises(kind, match=message):
        arguments.integer("f", "n", value, least=0, most=9)


@pytest.mark.parametrize(("value", "found"), [(None, math.inf), (0, 0.0), (np.float32(1.5), 1.5), (-math.inf, -math.inf)])
def test_timeouts_are_seconds(value: Any, found: float) -> None:
    """None is no limit."""
    assert arguments.seconds(None, value) == found


@pytest.mark.parametrize(("value", "kind"), [("1", TypeError), (1j, TypeError), (math.nan, ValueError), (10**400, ValueError)])
def test_what_is_no_timeout_is_refused(value: Any, kind: type[Exception]) -> None:
    """NaN too, which would be neither short nor long."""
    with pytest.raises(kind, match="argument timeout: expected a number of seconds"):
        arguments.seconds(None, value)


def test_errors_of_a_conversion_are_named() -> None:
    """They keep their class and their words."""
    found = arguments.named("asarray", "obj", UnicodeDecodeError("utf-8", b"", 0, 1, "no text"))
    assert type(found) is ValueError and str(found).startswith("asarray: argument obj: ") and "no text" in str(found)

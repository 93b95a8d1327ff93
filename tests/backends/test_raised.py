"""Exceptions of classes that do as they like."""

from __future__ import annotations

import pytest

import aiodev
from aiodev import KernelError, Stream
from aiodev._backends.compile.raised import raised, said


class Nothing(Exception):
    """Makes no exception at all."""

    def __new__(cls, *arguments: object) -> str:  # type: ignore[misc]
        return "no exception"


class Refusing(Exception):
    """Cannot be made."""

    def __init__(self, *arguments: object) -> None:
        raise LookupError("not like this")


class Mute(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise OSError("no text")


@aiodev.kernel
def fail(i, x):
    if x[i] >= 0:
        raise Nothing("at all")


def test_a_class_that_makes_no_exception_is_told_of() -> None:
    """In the place of the exception that it did not make."""
    found = raised(Nothing, ("at all",))
    assert isinstance(found, TypeError) and "Nothing(…) gave str" in str(found)
    assert isinstance(raised(Refusing, ()), LookupError)


def test_an_exception_without_a_text_is_told_of_by_its_class() -> None:
    """A text that cannot be had is no reason not to tell."""
    assert said(ValueError("seven")) == "ValueError: seven" and said(ValueError()) == "ValueError"
    assert said(Mute()) == "Mute: its text cannot be had: OSError"


@pytest.mark.asyncio
async def test_a_kernel_that_raises_what_is_no_exception_fails_as_any_other() -> None:
    """Every wait raises the same, and the stream goes on."""
    with Stream("cpu") as stream:
        x = aiodev.zeros(3)
        await stream.synchronize()
        failed = fail[3](x)
        for _ in range(2):
            with pytest.raises(KernelError, match="which is no exception") as caught:
                await failed
            assert isinstance(caught.value.__cause__, TypeError)
        assert await stream.call(int, 1) == 1

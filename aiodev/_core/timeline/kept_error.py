"""Errors that are kept for every waiter, without what the frames of their tracebacks hold.

**Problem.** A failure is kept, since every waiter is told, however late. Its traceback holds frames, these hold variables, and
in them are a request's arrays. Raising it adds the frames of the waiter.

**How.** The first waiter gets the exception itself, as it was raised; from then on it is that waiter's. What is kept is an
outline: a copy without traceback, and the places that the traceback led through. Later waiters get a copy each, of the same
type, with the same arguments, attributes, notes and causes, and a traceback through the same places, whose frames are empty.
"""

from __future__ import annotations

import contextlib
import inspect
from types import FrameType, FunctionType, TracebackType
from typing import Any, NamedTuple

from aiodev._core.errors import fresh
from aiodev._core.tuning import CAUSES_KEPT, PLACES_KEPT

__all__ = ["KeptError"]

_STUB = (lambda: (yield)).__code__


class KeptError:
    """An operation's exception, for any number of waiters.

    Args:
        error: the exception.
        ours: nobody else keeps it. What a backend keeps is never raised itself.
    """

    __slots__ = ("_error", "_ours", "_outline", "_traceback")

    def __init__(self, error: BaseException, ours: bool) -> None:
        self._error: BaseException | None = error
        self._traceback = error.__traceback__
        self._ours = ours
        self._outline: _Outline | None = None

    def take(self) -> BaseException:
        """The failure for a waiter that is told: the exception itself for the first, then copies."""
        error = self._error
        if error is None:
            return self.copy()
        if not self._ours:
            return fresh(error).with_traceback(self._traceback)
        self._outline = _Outline.of(error)
        self._error = self._traceback = None  # last: who finds no exception relies on the outline
        return fresh(error)

    def copy(self) -> BaseException:
        """A copy, for a timeline that passes the failure on without a waiter being told."""
        error = self._error
        outline = self._outline if error is None else _Outline.of(error)
        assert outline is not None
        return outline.draw()


class _Place(NamedTuple):
    """One line of a traceback."""

    module: str
    file: str
    function: str
    line: int


class _Outline:
    """An exception without its frames; its causes, and the members of a group, are outlines, too."""

    __slots__ = ("cause", "context", "copy", "members", "places", "suppresses")

    def __init__(self, error: BaseException, depth: int) -> None:
        self.copy = error
        self.places = tuple(_places(error.__traceback__))
        self.suppresses = error.__suppress_context__
        self.cause = _Outline.of(error.__cause__, depth + 1)
        self.context = _Outline.of(error.__context__, depth + 1) if error.__context__ is not error.__cause__ else None
        group = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        self.members = [outline for member in group if (outline := _Outline.of(member, depth + 1)) is not None]
        self.copy = self._bare() or error

    @staticmethod
    def of(error: BaseException | None, depth: int = 0) -> _Outline | None:
        return None if error is None or depth > CAUSES_KEPT else _Outline(error, depth)

    def _bare(self) -> BaseException | None:
        """The exception without traceback and causes; None if its type, such as an extension's, refuses to be copied."""
        try:
            return _copied(self.copy, [member.draw() for member in self.members])
        except Exception:  # whatever the type raises, it is of the program
            return None

    def draw(self) -> BaseException:
        """A new exception from the outline; the original if it cannot be copied."""
        error = self._bare()
        if error is None:
            return self.copy.with_traceback(_traceback(self.places))
        error.__cause__ = None if self.cause is None else self.cause.draw()
        error.__context__ = error.__cause__ if self.context is None else self.context.draw()
        error.__suppress_context__ = self.suppresses
        return error.with_traceback(_traceback(self.places))


def _copied(error: BaseException, members: list[BaseException]) -> BaseException:
    """A copy by the built-in type that it derives from: the constructor of a program's type may take anything."""
    kind = type(error)
    built_in: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    _, arguments, *state = built_in.__reduce__(error)
    if isinstance(error, BaseExceptionGroup):
        arguments = error.message, members
    made: BaseException = built_in.__new__(kind, *arguments)
    built_in.__init__(made, *arguments)
    for attributes in filter(None, state):
        built_in.__setstate__(made, attributes)
    for base in kind.__mro__[: kind.__mro__.index(built_in)]:
        for slot in filter(inspect.ismemberdescriptor, vars(base).values()):
            with contextlib.suppress(AttributeError):  # it has no value
                slot.__set__(made, slot.__get__(error))
    if hasattr(error, "__notes__"):
        made.__notes__ = [*error.__notes__]
    return made


def _places(traceback: TracebackType | None) -> list[_Place]:
    places = []
    while traceback is not None:
        frame = traceback.tb_frame
        code = frame.f_code
        places.append(_Place(frame.f_globals.get("__name__", ""), code.co_filename, code.co_name, traceback.tb_lineno))
        traceback = traceback.tb_next
    return places[-PLACES_KEPT:]


def _traceback(places: tuple[_Place, ...]) -> TracebackType | None:
    """A traceback through these places; it has their names and lines, and no variables."""
    traceback = None
    for place in reversed(places):
        traceback = TracebackType(traceback, _frame(place), -1, place.line)  # no instruction: the line is what is given
    return traceback


def _frame(place: _Place) -> FrameType:
    """A frame of a function of this name and file, which is a generator's: any other would hold those that call us here."""
    code = _STUB.replace(co_filename=place.file, co_name=place.function, co_qualname=place.function)
    frame: FrameType = FunctionType(code, {"__name__": place.module})().gi_frame
    return frame

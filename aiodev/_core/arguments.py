"""Checks of arguments that public functions share. They all say ``function: argument name: expected …, got …``.

They are for slow paths: constructors, settings, and what comes after a fast path has found nothing. Where the function is not
known, since many ask the same, it is None, and the message begins with the argument.
"""

from __future__ import annotations

import inspect
import math
import numbers
import operator
import reprlib
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = [
    "UNCONVERTED",
    "advice",
    "function",
    "instance",
    "integer",
    "is_kind",
    "items",
    "message",
    "named",
    "number",
    "refusal",
    "seconds",
    "shown",
]

T = TypeVar("T")

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = 80


def shown(value: object) -> str:
    """A value for a message: its type, and what it is in so far as that is short and can be told. Never raises."""
    kind = type(value).__name__
    if value is None or value is NotImplemented or value is Ellipsis:
        return repr(value)
    try:
        describe = getattr(type(value), "_describe", None)  # an array's repr has values, if they happen to be there
        text = f"<{describe(value)}>" if describe else " ".join(_repr.repr(value).split())
    except Exception:  # a stranger's __repr__, or an integer of very many digits
        return kind
    return text if kind in text else f"{kind} {text}"


#: Errors that NumPy raises where it cannot make an array of a value.
UNCONVERTED = (TypeError, ValueError, OverflowError)


def named(function: str, name: str, error: Exception) -> Exception:
    """An error of one of :data:`UNCONVERTED`, in words of whoever raised it, with the argument's name before them."""
    kind = next(kind for kind in UNCONVERTED if isinstance(error, kind))
    return kind(f"{function}: argument {name}: {error}")


def message(function: str | None, name: str, expected: str, value: object) -> str:
    """What is said of an argument that is refused."""
    where = f"argument {name}" if function is None else f"{function}: argument {name}"
    return f"{where}: expected {expected}, got {shown(value)}" + (advice(value) if "an array" in expected else "")


def advice(value: object) -> str:
    """What to do with an array of the host's where one of a device is expected; nothing of anything else."""
    is_host = type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"
    return "; aiodev.asarray(value) copies it to the device" if is_host else ""


def refusal(function: str | None, name: str, expected: str, value: object) -> TypeError:
    """The error of an argument of a wrong type."""
    return TypeError(message(function, name, expected, value))


def integer(
    function: str | None, name: str, value: Any, least: int | None = None, most: int | None = None,
    expected: str = "an integer",
) -> int:  # fmt: skip
    """An integer, of whatever type it is.

    Raises:
        TypeError: it is something else.
        ValueError: it is not in the range from ``least`` to ``most``.
    """
    try:
        integral = operator.index(value)
    except TypeError:
        raise refusal(function, name, expected, value) from None
    if (least is not None and integral < least) or (most is not None and integral > most):
        bounds = f"of {least} or more" if most is None else f"of {most} or less" if least is None else f"from {least} to {most}"
        raise ValueError(message(function, name, f"{expected} {bounds}", integral))
    return integral


def number(function: str | None, name: str, value: Any, expected: str = "a real number") -> float:
    """A real number as a float; it may be infinite, or NaN.

    Raises:
        TypeError: it is something else, such as a complex number or a text.
        ValueError: it is too large.
    """
    if not isinstance(value, numbers.Real):
        raise refusal(function, name, expected, value)
    try:
        return float(value)
    except OverflowError:
        raise ValueError(message(function, name, f"{expected} that a float can be", value)) from None


def seconds(function: str | None, value: Any) -> float:
    """A timeout in seconds; None is infinity.

    Raises:
        TypeError: it is neither.
        ValueError: it is NaN.
    """
    if value is None:
        return math.inf
    expected = "a number of seconds, or None for no limit"
    timeout = number(function, "timeout", value, expected)
    if math.isnan(timeout):
        raise ValueError(message(function, "timeout", expected, value))
    return timeout


def instance(function: str | None, name: str, value: Any, kind: type[T], expected: str) -> T:
    """What must be of a class.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(value, kind):
        raise refusal(function, name, expected, value)
    return value


def function(caller: str | None, name: str, value: T) -> T:
    """What must be callable.

    Raises:
        TypeError: it is not.
    """
    if not callable(value):
        raise refusal(caller, name, "a function", value)
    return value


def callback(caller: str, name: str, value: T, instead: str = "") -> T:
    """What must be a function that is called, and does its work then; ``instead``: what to do with a coroutine function.

    Raises:
        TypeError: it is no function, or makes coroutines.
    """
    function(caller, name, value)
    if is_kind(value, inspect.iscoroutinefunction):
        raise TypeError(f"{caller}: {name} {value!r} makes coroutines, which nobody awaits{instead}")
    return value


def is_kind(function: Any, kind: Callable[[Any], bool]) -> bool:
    """Whether a function, or an object that is called like one, is of a kind: ``inspect.iscoroutinefunction``, say."""
    return kind(function) or kind(type(function).__call__)


def items(function: str | None, name: str, value: Any, expected: str) -> list[Any]:
    """What an iterable gives.

    Raises:
        TypeError: it is none.
    """
    try:
        return list(value)
    except (TypeError, RuntimeError):  # RuntimeError: a future, which can be iterated, as an await does
        if not isinstance(value, list | tuple) and hasattr(type(value), "__next__"):
            raise  # a generator's own
        raise refusal(function, name, expected, value) from None

"""Exceptions that a body raised, from what its compiler kept of them: a class, and arguments.

The process that compiles has not the program's own classes of exceptions, only stand-ins that know what they stand for
(``__aiodev_class__``: a module's name, and a name in it). That is what it keeps; the class is looked up when a kernel fails.
"""

from __future__ import annotations

import importlib
import operator
from typing import Any

__all__ = ["ByName", "kept", "named_class", "raised", "said"]


class ByName(Exception):
    """In the place of a class that is known by its name, which is the first argument: (module, name in it)."""


def kept(kind: Any, arguments: tuple[Any, ...] | None) -> tuple[Any, tuple[Any, ...] | None]:
    """The class and the arguments to keep."""
    name = getattr(kind, "__aiodev_class__", None)
    return (kind, arguments) if name is None else (ByName, (name, *(arguments or ())))


def named_class(module: str, name: str) -> Any:
    """The class of a name in a module, which is imported."""
    return operator.attrgetter(name)(importlib.import_module(module))


def raised(kind: type[BaseException], arguments: tuple[Any, ...]) -> BaseException:
    """The exception, from what was kept; where it cannot be made, why not."""
    try:
        if kind is ByName:
            (module, name), *arguments_of_it = arguments
            kind, arguments = named_class(module, name), tuple(arguments_of_it)
        made: object = kind(*arguments)
    except Exception as error:  # the class is the user's; its failure is what there is to tell
        return error
    if isinstance(made, BaseException):
        return made
    return TypeError(f"{kind.__module__}.{kind.__qualname__}(…) gave {type(made).__name__}, which is no exception")


def said(error: BaseException) -> str:
    """The exception's type, and its text if it has one, whatever the class makes of that."""
    kind = type(error).__name__
    try:
        text = str(error)
    except Exception as failure:  # the class is the user's
        text = f"its text cannot be had: {type(failure).__name__}"
    return f"{kind}: {text}" if text else kind

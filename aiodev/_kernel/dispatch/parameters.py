"""Parameters of a body, and the arguments of a launch that go to them."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiodev._core.errors import LaunchError

__all__ = ["MISSING", "complete", "parameters_of"]


_NOT_PLAIN = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


class _Missing:
    """The value of an argument that was not given."""

    def __repr__(self) -> str:
        return "<nothing>"


MISSING = _Missing()


def parameters_of(function: Callable[..., None], ndim: int) -> list[inspect.Parameter]:
    """The parameters after the indices.

    Raises:
        TypeError: too few for the indices, or of a kind that a kernel cannot have; or this is no plain function with a name.
    """
    if not isinstance(function, types.FunctionType) or function.__code__.co_flags & _NOT_PLAIN:
        raise TypeError(
            f"{function!r}: a kernel is made of a plain function; of no coroutine, generator, method, class or kernel"
        )
    parameters = list(inspect.signature(function, follow_wrapped=False).parameters.values())
    if parameters and parameters[0].name in ("self", "cls") and _is_of_a_class(function):
        raise TypeError(
            f"{function.__qualname__}: a kernel is made of a plain function; this is a method, whose first parameter is "
            f"{parameters[0].name}: a kernel's first is an index"
        )
    if len(parameters) < ndim:
        raise TypeError(
            f"{function.__name__}: a kernel of {ndim} dimension(s) takes {ndim} indices first, then arguments"
        )
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{function.__name__}: parameter {parameter}: a kernel's parameters are plain ones")
        if parameter.name.startswith("_"):
            raise TypeError(f"{function.__name__}: parameter {parameter.name}: names must not begin with an underscore")
    return parameters[ndim:]


def _is_of_a_class(function: types.FunctionType) -> bool:
    """Whether a function is defined in the body of a class."""
    owner = function.__qualname__.rpartition(".")[0]
    return bool(owner) and not owner.endswith("<locals>")


def complete(
    kernel: str,
    parameters: Sequence[inspect.Parameter],
    args: tuple[Any, ...],
    named: Mapping[str, Any] = types.MappingProxyType({}),
) -> tuple[Any, ...]:
    """The arguments in order, with defaults for those that are not given.

    Raises:
        LaunchError: too few or too many, or one of a name that there is not, or that was given already.
    """
    names = [parameter.name for parameter in parameters]
    for name in named:
        if name not in names[len(args) :]:
            got = "it by position, too" if name in names else f"{name}={named[name]!r}"
            raise LaunchError(kernel, name, f"arguments among {', '.join(names)}, each once", got)
    args += tuple(named.get(p.name, p.default) for p in parameters[len(args) :])
    absent = (MISSING, inspect.Parameter.empty)
    missing = [name for name, value in zip(names, args, strict=False) if any(value is one for one in absent)]
    if missing or len(args) != len(names):
        got = f"{len(args) - len(missing)}" + (f" (not {', '.join(missing)})" if missing else "")
        expected = f"{len(names)} arguments ({', '.join(names)})"
        raise LaunchError(kernel, missing[0] if missing else None, expected, got)
    return args

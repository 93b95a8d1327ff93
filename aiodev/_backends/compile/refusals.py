"""Refusals of what numba allows in a body and kernels do not: to return a value, to draw a host thread's random numbers.

It is refused for every kind of device, and where bodies are interpreted; so nothing here needs numba.
"""

from __future__ import annotations

import dis
import random
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy

from aiodev._core.errors import CompileError

__all__ = ["captured_container", "check_host_state", "returned_value"]

_LIBRARIES = frozenset({"aiodev", "builtins", "cmath", "llvmlite", "math", "numba", "numpy", "operator", "scipy"})
_CONTAINERS = (list, dict, set, bytearray)
_GENERATORS = (random.Random, numpy.random.Generator, numpy.random.RandomState)


def returned_value(name: str, function: Callable[..., Any], found: str) -> CompileError:
    """The error for a body that returns something, which ``found`` describes."""
    code = function.__code__
    log = (
        f"the body returns a value ({found}), and nobody would get it: write it to an element of an array; "
        "a bare return ends the body early"
    )
    return CompileError(name, log, location=f"{code.co_filename}:{_returning_line(code)}")


def _returning_line(code: types.CodeType) -> int:
    """The line of the first return with a value."""
    is_none = False
    for step in dis.get_instructions(code):
        if step.opname == "RETURN_VALUE" and (step.is_jump_target or not is_none):
            return _line(step, code)
        if step.opname == "RETURN_CONST" and step.argval is not None:
            return _line(step, code)
        is_none = step.opname == "LOAD_CONST" and step.argval is None
    return code.co_firstlineno


def check_host_state(name: str, function: Callable[..., Any]) -> None:
    """Look for ``random``, ``numpy.random`` and generators of theirs, in the body and in what it calls.

    numba compiles those for the CPU, with a state of its own for each thread: no seed reaches it, and the numbers depend on
    which thread runs which index.

    Raises:
        CompileError: there is one.
    """
    for text, value, place in _all_values(function):
        if _is_host_state(value):
            log = (
                f"{text} draws from the state of a thread of the host: draw an array with aiodev.kernels.random ahead of "
                "the launch, and give the kernel that"
            )
            raise CompileError(name, log, location=place)


def captured_container(name: str, function: Callable[..., Any], message: str) -> CompileError | None:
    """The error for a list, or the like, that a body takes from outside; None where the compiler's ``message`` is of none.

    The compiler has no constants of these, and says so in words of its own, or by the name of a class of its own. What it does
    not compile, since a constant decides against it, may use them.
    """
    for text, value, place in _all_values(function):
        if type(value) in _CONTAINERS and re.search(rf"\b{re.escape(text.rpartition('.')[2])}\b", message):
            log = (
                f"{text} is a {type(value).__name__}, which a kernel cannot take from outside: make it a tuple or an array of "
                "NumPy, which are compiled in as they are, or give the kernel an array"
            )
            return CompileError(name, log, location=place)
    return None


def _all_values(function: Callable[..., Any]) -> Iterator[tuple[str, Any, str]]:
    """What the body, and what it calls, take from outside: the text, the value, the place."""
    ahead = [function]
    seen = {id(function)}
    while ahead:
        reached = ahead.pop()
        for text, value, line in _values(reached, reached.__code__):
            yield text, value, f"{reached.__code__.co_filename}:{line}"
            called = _called(value)
            if called is not None and id(called) not in seen:
                seen.add(id(called))
                ahead.append(called)


def _values(function: Callable[..., Any], code: types.CodeType) -> Iterator[tuple[str, Any, int]]:
    """The values that the code takes from globals, cells and modules: the text, the value, the line."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    text, value = "", None
    for step in dis.get_instructions(code):
        if step.opname in ("CACHE", "EXTENDED_ARG"):
            continue
        if step.opname == "LOAD_GLOBAL":
            text, value = step.argval, function.__globals__.get(step.argval)
        elif step.opname == "LOAD_DEREF" and step.argval in cells:
            text, value = step.argval, _content(cells[step.argval])
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(value, types.ModuleType):
            text, value = f"{text}.{step.argval}", getattr(value, step.argval, None)
        else:
            value = None
            if isinstance(step.argval, types.CodeType):  # of a function in the body
                yield from _values(function, step.argval)
        if value is not None:
            yield text, value, _line(step, code)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty; the compiler says so better
        return None


def _is_host_state(value: Any) -> bool:
    if isinstance(value, types.ModuleType):
        return value.__name__ in ("random", "numpy.random")
    owner = getattr(value, "__self__", value)
    return isinstance(owner, _GENERATORS) or str(getattr(value, "__module__", None)).startswith("numpy.random")


def _called(value: Any) -> Callable[..., Any] | None:
    """The function that is compiled where the body calls ``value``; None for what the compiler knows by itself."""
    for name in ("__aiodev_body__", "py_func"):
        value = getattr(value, name, value)
    if not isinstance(value, types.FunctionType):
        return None
    module = value.__module__ or ""
    standard = f"{module}.".startswith("aiodev.kernels.")
    return value if standard or module.partition(".")[0] not in _LIBRARIES else None


def _line(step: dis.Instruction, code: types.CodeType) -> int:
    positions = step.positions
    return code.co_firstlineno if positions is None or positions.lineno is None else positions.lineno

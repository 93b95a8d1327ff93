"""Digest: a hash of what a body depends on, the same in every process."""

from __future__ import annotations

import io
import pickle
import types
from typing import Any

import numpy

__all__ = ["Uncapturable", "dumps", "feed", "feed_code"]


class Uncapturable(Exception):
    """The body depends on a value that cannot be sent to another process, nor keyed."""


class _Pickler(pickle.Pickler):
    """Refuses objects that another process would look for in its own ``__main__``."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type | types.FunctionType) and value.__module__ == "__main__":
            raise Uncapturable(f"{value.__qualname__} is of this process's __main__")
        return NotImplemented


def dumps(value: Any) -> bytes:
    """Pickle a value for another process of the same Python.

    Raises:
        Uncapturable: the value cannot be pickled.
    """
    out = io.BytesIO()
    try:
        _Pickler(out, protocol=4).dump(value)
    except Uncapturable:
        raise
    except Exception as error:  # whatever a foreign __reduce__ raises
        raise Uncapturable(f"{type(value).__name__} cannot be pickled: {error}") from error
    return out.getvalue()


def feed_code(hasher: Any, code: types.CodeType) -> None:
    """Hash a code object. ``marshal`` will not do: its output depends on reference counts."""
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_firstlineno)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_name, code.co_filename)
    hasher.update(repr((shape, names)).encode())
    for data in (code.co_code, code.co_linetable, code.co_exceptiontable):
        hasher.update(data)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            feed_code(hasher, constant)
        else:
            feed(hasher, constant)


def feed(hasher: Any, value: Any) -> None:
    """Hash a value by its type and content.

    Raises:
        Uncapturable: the value has no bytes of its own.
    """
    hasher.update(type(value).__qualname__.encode())
    if value is None or isinstance(value, bool | int | float | complex | str | bytes) or value is Ellipsis:
        hasher.update(repr(value).encode())
    elif isinstance(value, tuple | list):
        hasher.update(str(len(value)).encode())
        for item in value:
            feed(hasher, item)
    elif isinstance(value, frozenset | set):
        feed(hasher, sorted(value, key=repr))
    elif isinstance(value, dict):
        feed(hasher, sorted(value.items(), key=repr))
    elif isinstance(value, numpy.ndarray | numpy.generic):
        array = numpy.asarray(value)
        hasher.update(f"{array.dtype}{array.shape}".encode())
        hasher.update(array.tobytes())
    elif isinstance(value, type | types.BuiltinFunctionType | types.FunctionType):
        hasher.update(f"{value.__module__}.{value.__qualname__}".encode())
    else:
        hasher.update(dumps(value))

"""A body with all that determines its code, as plain data: what the cache is keyed by, and what a worker process gets.

A snapshot holds the code object, and the values of the globals, closure cells and defaults that the code looks up, and of
those of the plain functions that it calls, and so on. Two things follow. Its digest is the same in every process as long as
nothing that matters has changed, whatever else changed in the module. And a worker process rebuilds the function from
it without importing the user's module, so a kernel in ``__main__``, in a notebook, or in a closure is no different.

Values are taken when the kernel is first launched with given types, and copied when they are hashed, soon after.
"""

from __future__ import annotations

import builtins
import importlib
import marshal
import pickle
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy

__all__ = ["Snapshot", "Uncapturable", "capture"]

#: Packages whose functions and modules are named, not copied: the compiler knows them by identity.
NAMED_PACKAGES = frozenset({"aiodev", "builtins", "cmath", "llvmlite", "math", "numba", "numpy", "operator", "scipy"})


class Uncapturable(Exception):
    """A body that depends on something that cannot be sent to another process, nor keyed."""


@dataclass(slots=True)
class _Function:
    """One function: its code, and for each name it looks up a tagged value."""

    code: types.CodeType
    names: tuple[str, str, str]
    defaults: tuple[Any, ...] | None
    globals: dict[str, tuple[str, Any]] = field(default_factory=dict)
    closure: tuple[tuple[str, Any], ...] = ()
    attributes: dict[str, tuple[str, Any]] = field(
        default_factory=dict
    )  # read from modules; they count for the key only


class Snapshot:
    """Functions that refer to each other by index; the first is the body."""

    def __init__(self) -> None:
        self.functions: list[_Function] = []

    def digest(self) -> str:
        """The same in every process, for the same code and values.

        Raises:
            Uncapturable: a value that has no bytes of its own.
        """
        import hashlib  # here, and so off the loop: it loads OpenSSL

        hasher = hashlib.sha256()
        for function in self.functions:
            _feed_code(hasher, function.code)
            _feed(hasher, function.defaults)
            for group in (function.globals, function.attributes, dict(enumerate(function.closure))):
                for name, (tag, value) in sorted(group.items(), key=lambda item: str(item[0])):
                    hasher.update(f"{name}={tag}:".encode())
                    _feed(hasher, value)
        return hasher.hexdigest()

    def to_bytes(self) -> bytes:
        """For another process of the same Python.

        Raises:
            Uncapturable: a value that cannot be pickled.
        """
        try:
            return pickle.dumps(
                [(marshal.dumps(f.code), f.names, f.defaults, f.globals, f.closure) for f in self.functions]
            )
        except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
            raise Uncapturable(str(error)) from error

    @staticmethod
    def rebuild(data: bytes) -> Callable[..., None]:
        """The body, from :meth:`to_bytes`."""
        parts = pickle.loads(data)
        made: list[types.FunctionType] = []
        for code, (name, qualname, module), defaults, _, closure in parts:
            cells = tuple(types.CellType() for _ in closure)
            namespace = {"__builtins__": builtins, "__name__": module}
            function = types.FunctionType(marshal.loads(code), namespace, name, defaults, cells)
            function.__qualname__, function.__module__ = qualname, module
            made.append(function)
        for function, (_, _, _, values, closure) in zip(made, parts, strict=True):
            function.__globals__.update({name: _restore(tagged, made) for name, tagged in values.items()})
            for cell, tagged in zip(function.__closure__ or (), closure, strict=True):
                cell.cell_contents = _restore(tagged, made)
        return made[0]


def _restore(tagged: tuple[str, Any], made: list[types.FunctionType]) -> Any:
    tag, value = tagged
    if tag == "function":
        return made[value]
    if tag == "module":
        return importlib.import_module(value)
    if tag == "jitted":
        import numba

        index, options = value
        return numba.njit(**options)(made[index])
    return value


def capture(function: Callable[..., None]) -> Snapshot:
    """What ``function`` depends on, as it is now. Cheap: values are referred to, not copied."""
    snapshot = Snapshot()
    _add(snapshot, function, {})
    return snapshot


def _add(snapshot: Snapshot, function: Any, seen: dict[int, int]) -> int:
    if id(function) in seen:
        return seen[id(function)]
    index = seen[id(function)] = len(snapshot.functions)
    code = function.__code__
    names = (function.__name__, function.__qualname__, function.__module__ or "__main__")
    captured = _Function(code, names, function.__defaults__)
    snapshot.functions.append(captured)
    for name in sorted(_looked_up(code)):
        if name in function.__globals__:
            value = function.__globals__[name]
            captured.globals[name] = _tag(snapshot, value, seen)
            if isinstance(value, types.ModuleType):
                _add_attributes(snapshot, captured, value, seen)
    closure = []
    for cell in function.__closure__ or ():
        try:
            closure.append(_tag(snapshot, cell.cell_contents, seen))
        except ValueError:
            closure.append(("empty", None))
    captured.closure = tuple(closure)
    return index


def _add_attributes(snapshot: Snapshot, captured: _Function, module: types.ModuleType, seen: dict[int, int]) -> None:
    """Constants and functions that the code reads from a module of the user's count for the key, though not by copy."""
    if _package(module.__name__) in NAMED_PACKAGES:
        return
    for name in sorted(_looked_up(captured.code)):
        value = vars(module).get(name)
        if isinstance(value, bool | int | float | complex | str | types.FunctionType) or hasattr(value, "py_func"):
            captured.attributes[f"{module.__name__}.{name}"] = _tag(snapshot, value, seen)


def _tag(snapshot: Snapshot, value: Any, seen: dict[int, int]) -> tuple[str, Any]:
    if isinstance(value, types.ModuleType):
        return "module", value.__name__
    body = getattr(value, "__aiodev_body__", None)
    if body is not None:
        return "function", _add(snapshot, body, seen)
    if isinstance(value, types.FunctionType) and _package(value.__module__) not in NAMED_PACKAGES:
        return "function", _add(snapshot, value, seen)
    plain, options = getattr(value, "py_func", None), getattr(value, "targetoptions", None)
    if isinstance(plain, types.FunctionType) and isinstance(options, dict):
        return "jitted", (_add(snapshot, plain, seen), dict(options))
    return "value", value


def _package(module: str | None) -> str:
    """The package of a module; that of the standard kernels is one by itself, since they are written as any user's are."""
    name = module or ""
    return "aiodev.kernels" if f"{name}.".startswith("aiodev.kernels.") else name.partition(".")[0]


def _looked_up(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _looked_up(constant)
    return names


def _feed_code(hasher: Any, code: types.CodeType) -> None:
    """Hash a code object. ``marshal`` will not do: its output depends on reference counts."""
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_firstlineno)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_name, code.co_filename)
    hasher.update(repr((shape, names)).encode())
    for data in (code.co_code, code.co_linetable, code.co_exceptiontable):
        hasher.update(data)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _feed_code(hasher, constant)
        else:
            _feed(hasher, constant)


def _feed(hasher: Any, value: Any) -> None:
    """Hash a value by its type and content."""
    hasher.update(type(value).__qualname__.encode())
    if value is None or isinstance(value, bool | int | float | complex | str | bytes) or value is Ellipsis:
        hasher.update(repr(value).encode())
    elif isinstance(value, tuple | list):
        hasher.update(str(len(value)).encode())
        for item in value:
            _feed(hasher, item)
    elif isinstance(value, frozenset | set):
        _feed(hasher, sorted(value, key=repr))
    elif isinstance(value, dict):
        _feed(hasher, sorted(value.items(), key=repr))
    elif isinstance(value, numpy.ndarray | numpy.generic):
        array = numpy.asarray(value)
        hasher.update(f"{array.dtype}{array.shape}".encode())
        hasher.update(array.tobytes())
    elif isinstance(value, type | types.BuiltinFunctionType | types.FunctionType):
        hasher.update(f"{value.__module__}.{value.__qualname__}".encode())
    else:
        try:
            hasher.update(pickle.dumps(value, protocol=4))
        except Exception as error:  # whatever a foreign __reduce__ raises
            raise Uncapturable(f"{type(value).__name__} cannot be pickled: {error}") from error

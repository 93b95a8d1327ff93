"""A body with all that determines its code, as plain data: what the cache is keyed by, and what a worker process gets.

A snapshot holds the code object, and the values of the globals, closure cells and defaults that the code looks up, and of
those of the plain functions that it calls, and so on. Two things follow. Its digest is the same in every process as long as
nothing that matters has changed, whatever else changed in the module. And a worker process rebuilds the function from
it without importing the user's modules, so a kernel in ``__main__``, in a notebook, or in a closure is no different: a module
is sent as what the code may take from it, an enumeration as its members, a class of exceptions as its name.

Values are taken when the kernel is first launched with given types, and copied when they are hashed, soon after.
"""

from __future__ import annotations

import builtins
import enum
import functools
import importlib
import marshal
import opcode
import operator
import pickle
import sys
import types
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiodev._core.source_names import relative
from aiodev._kernel.compile.digest import Uncapturable, dumps, feed, feed_code

__all__ = ["Snapshot", "Uncapturable", "capture"]

#: Packages whose functions and modules are named, not copied: the compiler knows them by identity.
NAMED_PACKAGES = frozenset({"aiodev", "builtins", "cmath", "llvmlite", "math", "numba", "numpy", "operator", "scipy"})

#: What a value is, and what stands for it.
Tagged = tuple[str, Any]

_ENUMERATIONS = (enum.IntFlag, enum.IntEnum, enum.Flag, enum.Enum)
_EXTENDED, _LOAD_GLOBAL, _LOAD_NAME = (opcode.opmap[name] for name in ("EXTENDED_ARG", "LOAD_GLOBAL", "LOAD_NAME"))


@dataclass(slots=True)
class _Function:
    """One function: its code, and for each name it looks up a tagged value."""

    code: types.CodeType
    names: tuple[str, str, str]
    defaults: tuple[Tagged, ...] | None = None
    globals: dict[str, Tagged] = field(default_factory=dict)
    closure: tuple[Tagged, ...] = ()


class Snapshot:
    """Functions that refer to each other by index; the first is the body."""

    def __init__(self) -> None:
        self.functions: list[_Function] = []

    def digest(self) -> str:
        """A hash that is the same in every process for the same code and values.

        Raises:
            Uncapturable: a value has no bytes of its own.
        """
        import hashlib  # here, and so off the loop: it loads OpenSSL

        hasher = hashlib.sha256()
        for function in self.functions:
            feed_code(hasher, portable(function.code))
            feed(hasher, function.defaults)
            for group in (function.globals, dict(enumerate(function.closure))):
                for name, (tag, value) in sorted(group.items(), key=lambda item: str(item[0])):
                    hasher.update(f"{name}={tag}:".encode())
                    feed(hasher, value)
        return hasher.hexdigest()

    def to_bytes(self) -> bytes:
        """The snapshot as bytes, for another process of the same Python.

        Raises:
            Uncapturable: a value cannot be pickled.
        """
        return dumps([(marshal.dumps(portable(f.code)), f.names, f.defaults, f.globals, f.closure) for f in self.functions])

    @staticmethod
    def rebuild(data: bytes) -> Callable[..., None]:
        """The body, rebuilt from what :meth:`to_bytes` gave."""
        parts = pickle.loads(data)
        made: list[types.FunctionType] = []
        for code, (name, qualname, module), _, _, closure in parts:
            cells = tuple(types.CellType() for _ in closure)
            namespace = {"__builtins__": builtins, "__name__": module}
            function = types.FunctionType(marshal.loads(code), namespace, name, None, cells)
            function.__qualname__ = qualname
            function.__module__ = None  # type: ignore[assignment]  # else numba imports it by its name
            made.append(function)
        for function, (_, _, defaults, values, closure) in zip(made, parts, strict=True):
            function.__defaults__ = defaults and tuple(_restore(tagged, made) for tagged in defaults)
            function.__globals__.update({name: _restore(tagged, made) for name, tagged in values.items()})
            for cell, tagged in zip(function.__closure__ or (), closure, strict=True):
                if tagged[0] != "empty":
                    cell.cell_contents = _restore(tagged, made)
        return made[0]


def _restore(tagged: Tagged, made: list[types.FunctionType]) -> Any:
    tag, value = tagged
    if tag == "function":
        return made[value]
    if tag == "module":
        return importlib.import_module(value)
    if tag == "contents":
        name, values = value
        module = types.ModuleType(name)
        vars(module).update({attribute: _restore(item, made) for attribute, item in values.items()})
        return module
    if tag == "jitted":
        import numba

        index, options = value
        return numba.njit(**options)(made[index])
    if tag == "tuple":
        return tuple(_restore(item, made) for item in value)
    if tag == "record":
        kind, values = value
        return _record(*kind)(*(_restore(item, made) for item in values))
    if tag == "record class":
        return _record(*value)
    if tag == "enumeration":
        return _enumeration(*value)
    if tag == "member":
        kind, member = value
        return _enumeration(*kind)[member]
    if tag == "exception":
        return type(value[1].rpartition(".")[2], (Exception,), {"__aiodev_class__": value})
    return value


@functools.cache
def _record(name: str, names: tuple[str, ...]) -> Any:
    return namedtuple(name, names)


def _enumeration(base: str, name: str, members: tuple[tuple[str, Any], ...]) -> Any:
    which = base, name, repr(members)  # in which 1, 1.0 and True differ, and 0.0 and -0.0
    rebuilt = _enumerations.get(which)
    if rebuilt is None:
        rebuilt = _enumerations.setdefault(which, getattr(enum, base)(name, members))
    return rebuilt


_enumerations: dict[tuple[str, str, str], Any] = {}


def capture(function: Callable[..., None]) -> Snapshot:
    """What ``function`` depends on, as it is now. Cheap: values are referred to, not copied."""
    capturing = _Capturing()
    capturing.add(function)
    return capturing.snapshot


class _Capturing:
    """Adds functions to a snapshot, each once."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self._seen: dict[int, int] = {}
        self._modules: list[types.ModuleType] = []  # that are being looked into, to stop where they name each other

    def add(self, function: Any) -> int:
        """Add a function; returns its index."""
        if id(function) in self._seen:
            return self._seen[id(function)]
        functions = self.snapshot.functions
        index = self._seen[id(function)] = len(functions)
        code = function.__code__
        names = (function.__name__, function.__qualname__, function.__module__ or "__main__")
        captured = _Function(code, names)
        functions.append(captured)
        attributes = _names(code)
        if function.__defaults__:
            captured.defaults = tuple(self._tag(value, attributes) for value in function.__defaults__)
        for name in sorted(_globals(code)):
            if name in function.__globals__:
                captured.globals[name] = self._tag(function.__globals__[name], attributes)
        closure: list[Tagged] = []
        for cell in function.__closure__ or ():
            try:
                closure.append(self._tag(cell.cell_contents, attributes))
            except ValueError:
                closure.append(("empty", None))
        captured.closure = tuple(closure)
        return index

    def _tag(self, value: Any, attributes: frozenset[str]) -> Tagged:
        """The tagged value that stands for a value; the code may take only ``attributes`` of it."""
        if isinstance(value, types.ModuleType):
            return self._tag_module(value, attributes)
        if isinstance(value, type):
            return _tag_class(value)
        if isinstance(value, enum.Enum):
            kind = _tag_class(type(value))
            return ("member", (kind[1], value.name)) if kind[0] == "enumeration" and value.name else ("value", value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return "record", (_tag_class(type(value))[1], tuple(self._tag(item, attributes) for item in value))
        if type(value) is tuple:
            return "tuple", tuple(self._tag(item, attributes) for item in value)
        body = getattr(value, "__aiodev_body__", None)
        if body is not None:
            return "function", self.add(body)
        if isinstance(value, types.FunctionType) and _package(value.__module__) not in NAMED_PACKAGES:
            return "function", self.add(value)
        plain, options = getattr(value, "py_func", None), getattr(value, "targetoptions", None)
        if isinstance(plain, types.FunctionType) and isinstance(options, dict):
            kept = {name: option for name, option in options.items() if name != "nopython"}  # njit says it itself
            return "jitted", (self.add(plain), kept)
        return "value", value

    def _tag_module(self, module: types.ModuleType, attributes: frozenset[str]) -> Tagged:
        """Capture of a user's module what the code may take from it: only that is keyed, and only that has to run."""
        if _package(module.__name__) in NAMED_PACKAGES or module in self._modules:
            return "module", module.__name__
        self._modules.append(module)
        present = [name for name in sorted(attributes) if hasattr(module, name)]
        contents = {name: self._tag(getattr(module, name), attributes) for name in present}
        self._modules.pop()
        return "contents", (module.__name__, contents)


def _tag_class(value: type) -> Tagged:
    """Capture a user's class by what the compiler asks of it, where that is known."""
    if _package(value.__module__) in NAMED_PACKAGES:
        return "value", value
    if issubclass(value, enum.Enum):
        base = next(kind.__name__ for kind in _ENUMERATIONS if issubclass(value, kind))
        members = tuple((name, member.value) for name, member in value.__members__.items())
        if all(isinstance(number, bool | int | float) for _, number in members):
            return "enumeration", (base, value.__name__, members)
    if issubclass(value, tuple) and hasattr(value, "_fields"):
        return "record class", (value.__name__, tuple(value._fields))
    if issubclass(value, Exception):
        try:
            if operator.attrgetter(value.__qualname__)(sys.modules[value.__module__]) is value:
                return "exception", (value.__module__, value.__qualname__)
        except (AttributeError, KeyError):  # no other code finds it by its name
            pass
    return "value", value


def _package(module: str | None) -> str:
    """The package of a module. The standard kernels are a package by themselves, since they are written as any user's are."""
    name = module or ""
    return "aiodev.kernels" if f"{name}.".startswith("aiodev.kernels.") else name.partition(".")[0]


def portable(code: types.CodeType) -> types.CodeType:
    """The code object with this package's files named from its folder, the same wherever it is installed."""
    return _portable(code, code.co_filename)


@functools.lru_cache(1024)
def _portable(code: types.CodeType, filename: str) -> types.CodeType:
    """``filename`` is the code's: codes that differ in nothing else are equal."""
    inner = tuple(portable(each) if isinstance(each, types.CodeType) else each for each in code.co_consts)
    filename = relative(filename)
    changed = filename != code.co_filename or any(one is not other for one, other in zip(inner, code.co_consts, strict=True))
    return code.replace(co_filename=filename, co_consts=inner) if changed else code


@functools.lru_cache(1024)
def _names(code: types.CodeType) -> frozenset[str]:
    """The names of globals and attributes in the code, and in what is defined inside of it."""
    return frozenset(code.co_names).union(*(_names(inner) for inner in _inner(code)))


@functools.lru_cache(1024)
def _globals(code: types.CodeType) -> frozenset[str]:
    """The names that the code looks up as globals, by its instructions: ``x.size`` needs no global ``size``."""
    looked_up, names = set(), code.co_names
    extended = 0
    for operation, argument in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument |= extended
        extended = argument << 8 if operation == _EXTENDED else 0
        if operation == _LOAD_GLOBAL:
            looked_up.add(names[argument >> 1])  # the lowest bit says whether the global is about to be called
        elif operation == _LOAD_NAME:
            looked_up.add(names[argument])
    return frozenset(looked_up).union(*(_globals(inner) for inner in _inner(code)))


def _inner(code: types.CodeType) -> list[types.CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]

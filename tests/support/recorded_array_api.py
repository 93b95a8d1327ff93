"""The namespace that the public suite tests when its calls are recorded (``tests/array_api.py --record``).

It is :mod:`aiodev.array_api`, whose functions, and the operators of whose arrays, write down how they were called: of each test
a few calls of what it is named after.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gzip
import json
import os
import re
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from standard_calls import Unknown, encode

import aiodev
from aiodev import array_api

#: Set to the file that calls are written to.
RECORD = "AIODEV_TESTS_RECORD"
#: Calls kept of a test.
KEPT = 3
#: Methods that are written down, too.
_BOTH_WAYS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
_ALONE = "abs invert neg pos getitem setitem bool int float complex index eq ne lt le gt ge"
OPERATORS = [f"__{name}__" for name in _ALONE.split()]
OPERATORS += [f"__{prefix}{name}__" for name in _BOTH_WAYS.split() for prefix in ("", "r", "i")]

#: By test and function: of each combination of types, the longest call.
_recorded: dict[tuple[str, str], dict[str, str]] = {}
_inside = threading.local()


def _is_tested(name: str) -> str | None:
    """The running test, if it is one of what has this name, such as ``test_getitem_masking`` of ``__getitem__``."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    own = name.rpartition(".")[2].strip("_")
    tokens = [token.removeprefix("test_").removeprefix("linalg_").strip("_") for token in re.findall(r"\w+", test)]
    return test if any(token == own or token.startswith(f"{own}_") for token in tokens) else None


def _recording(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, writing down its calls."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        test = None if getattr(_inside, "call", False) else _is_tested(name)
        if test is None:
            return function(*args, **kwargs)
        _inside.call = True
        try:
            given: Any = None
            with contextlib.suppress(Unknown):
                given = encode(list(args))["list"], {key: encode(value) for key, value in kwargs.items()}
            try:
                result = function(*args, **kwargs)
            except Exception as error:
                _keep(test, name, given, {"raises": type(error).__name__})
                raise
            with contextlib.suppress(Unknown):
                _keep(test, name, given, {"gives": encode(args[0] if name == "__setitem__" else result)})
            return result
        finally:
            _inside.call = False

    return call


def _keep(test: str, name: str, given: Any, outcome: Any) -> None:
    if given is not None:
        text = json.dumps((name, *given, outcome))
        types = " ".join(re.findall(r'"array": \["(\w+)"', text))
        kept = _recorded.setdefault((test, name), {})
        if len(text) > len(kept.get(types, "")):
            kept[types] = text


def _write(path: str) -> None:
    with open(path, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        texts = {text for kept in _recorded.values() for text in sorted(kept.values(), key=len)[-KEPT:]}
        lines = ",\n".join(sorted(texts))
        packed.write(f"[{lines}]\n".encode())


def _namespace(path: str) -> types.ModuleType:
    """The standard's namespace, recording what is called until the process ends."""
    namespace = types.ModuleType(__name__, array_api.__doc__)
    for name in array_api.__all__:
        found = getattr(array_api, name)
        if isinstance(found, types.ModuleType):
            part = types.SimpleNamespace()
            for inner in found.__all__:
                value = getattr(found, inner)
                setattr(part, inner, _recording(f"{name}.{inner}", value) if callable(value) else value)
            setattr(namespace, name, part)
        else:
            is_function = callable(found) and not name.startswith("__") and not isinstance(found, type)
            setattr(namespace, name, _recording(name, found) if is_function else found)
    for name in OPERATORS:
        if hasattr(aiodev.Array, name):
            setattr(aiodev.Array, name, _recording(name, getattr(aiodev.Array, name)))
    atexit.register(_write, path)
    return namespace


sys.modules[__name__] = _namespace(os.environ[RECORD])  # its own names are not the standard's

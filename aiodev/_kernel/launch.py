"""The call of a kernel, as short as Python allows.

Every launch needs the same few steps: find what was compiled for these types, pack the arguments, submit, note the use of the
buffers, return a completion. A generic loop over the arguments would cost several times the submission itself, so each
kernel has a call function that is generated for its parameters, with a branch for each of the last few combinations of
types. A branch compares by identity: an array's ``_key`` is interned, a scalar has its class. What no branch knows goes to
:meth:`aiodev._kernel.kernel.Kernel._launch_slowly`, which checks everything and may generate a new call.
"""

from __future__ import annotations

import inspect
import linecache
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aiodev._core import context, sites
from aiodev._core.completion import Completion
from aiodev._core.current import current_stream
from aiodev._kernel.signature import ARRAY, COMPLEX, Signature

if TYPE_CHECKING:
    from aiodev._core.device import Device
    from aiodev._kernel.service import Loading

__all__ = ["BRANCHES", "MISSING", "Variant", "generate_call"]

#: Combinations of types that a call function tells apart; more go through a dictionary.
BRANCHES = 4


class Variant:
    """A kernel for one combination of types on one device.

    Attributes:
        keys: what identifies the combination: an array's key, or a scalar's class, for each argument.
    """

    __slots__ = ("device", "keys", "loading", "signature")

    def __init__(self, keys: tuple[Any, ...], device: Device, signature: Signature, loading: Loading) -> None:
        self.keys = keys
        self.device = device
        self.signature = signature
        self.loading = loading


def generate_call(
    name: str, ndim: int, parameters: Sequence[inspect.Parameter], variants: Sequence[Variant], slow: Callable[..., Any]
) -> Callable[..., Completion]:
    """The call function of a kernel: ``call(place, *arguments)``.

    ``place`` is an int (one dimension, current stream) or a parsed place. ``slow(place, arguments)`` launches in every
    case that ``variants``, which are loaded, do not cover.
    """
    names = [parameter.name for parameter in parameters]
    namespace: dict[str, Any] = {
        "_context": context.current, "_current": current_stream, "_here": sites.here, "_join": b"".join,
        "_Completion": Completion, "_new": tuple.__new__, "_slow": slow, "_missing": MISSING,
        "_Errors": (AttributeError, struct.error, OverflowError, TypeError),
    }  # fmt: skip
    signature = ["_place"]
    for parameter in parameters:
        default = parameter.default is not inspect.Parameter.empty
        namespace[f"_default_{parameter.name}"] = parameter.default if default else MISSING
        signature.append(f"{parameter.name}=_default_{parameter.name}")
    arguments = "".join(f"{parameter}, " for parameter in names)
    lines = [f"def {name}({', '.join(signature)}, *_extra):"]
    if variants:
        lines += _fast_path(ndim, names, variants, namespace)
    lines.append(f"    return _slow(_place, ({arguments}*_extra,))")
    source = "\n".join(lines) + "\n"
    filename = f"<aiodev launch of {name}>"
    exec(compile(source, filename, "exec"), namespace)
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    call: Callable[..., Completion] = namespace[name]
    return call


class _Missing:
    """The value of an argument that was not given."""

    def __repr__(self) -> str:
        return "<nothing>"


MISSING = _Missing()


def _fast_path(ndim: int, names: list[str], variants: Sequence[Variant], namespace: dict[str, Any]) -> list[str]:
    pattern = variants[0].signature.pattern
    arrays = [name for name, kind in zip(names, pattern, strict=True) if kind == ARRAY]
    scalars = [name for name, kind in zip(names, pattern, strict=True) if kind != ARRAY]
    lines = ["    try:"]
    if ndim == 1:
        lines += [
            "        if _place.__class__ is int:",
            "            _size = _n0 = _place",
            "            _stream = None",
            "        else:",
            "            _size, (_n0,), _stream = _place",
        ]
    else:
        lines.append(f"        _size, ({', '.join(f'_n{d}' for d in range(ndim))}), _stream = _place")
    lines += [
        "        if _stream is None:",
        "            _frame = _context()",
        "            _stream = _frame.streams.get(_frame.device) or _current()",
        "        _device = _stream.device",
    ]
    lines += [f"        _key_{name} = {name}._key" for name in arrays]
    lines += [f"        _class_{name} = {name}.__class__" for name in scalars]
    test = "if"
    for number, variant in enumerate(variants):
        namespace[f"_pack{number}"] = variant.signature.pack
        namespace[f"_entry{number}"] = variant.loading.entry
        namespace[f"_device{number}"] = variant.device
        conditions = [f"_device is _device{number}"]
        numbers = [f"_n{d}" for d in range(ndim)]
        for name, kind, key in zip(names, pattern, variant.keys, strict=True):
            namespace[f"_is{number}_{name}"] = key
            seen = f"_key_{name}" if kind == ARRAY else f"_class_{name}"
            conditions.append(f"{seen} is _is{number}_{name}")
            if kind != ARRAY:
                numbers += [f"{name}.real", f"{name}.imag"] if kind == COMPLEX else [name]
        lines += [
            f"        {test} {' and '.join(conditions)}:",
            f"            _entry = _entry{number}",
            f"            _words = _pack{number}({', '.join(numbers)})",
        ]
        test = "elif"
    packed = "".join(f", {name}._packed" for name in arrays)
    block = f"_join((_words{packed}))" if arrays else "_words"
    lines += [
        "        else:",
        "            _entry = None",
        "    except _Errors:",
        "        _entry = None",
        "    if _entry is not None and _size >= 0 and not _extra:",
        f"        _value = _stream._launch(_entry, _size, {block}, _here(1))",
        "        _timeline = _stream.timeline",
    ]
    for name in arrays:
        lines += [
            f"        _buffer = {name}._buffer",
            "        if _buffer._timeline is _timeline:",
            "            if _value > _buffer._value:",  # another thread's later launch may have been faster here
            "                _buffer._value = _value",
            "        else:",
            "            _buffer._stamp(_timeline, _value)",
        ]
    lines.append("        return _new(_Completion, (_timeline, _value))")
    return lines

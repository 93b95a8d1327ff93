"""The call of a kernel, as short as Python allows.

Every launch needs the same few steps: find what was compiled for these types, pack the arguments, submit, note the use of the
buffers, return a completion. A generic loop over the arguments would cost several times the submission itself, so each
kernel has a call function that is generated for its parameters, with a branch for each of the last few combinations of
types. A branch compares by identity: the ``key`` of an array's form is interned, a scalar has its class. What no branch knows
goes to :meth:`aiodev._kernel.kernel.Kernel._launch_slowly`, which checks everything and may give the function new code.

A bound launch knows its types, its stream and its arguments, so that only the submission and the notes are left. Its call
is the same for every kernel with as many arrays.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import linecache
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

from aiodev._core import callsites, context
from aiodev._core.streams.completion import Completion
from aiodev._core.streams.current import current_stream
from aiodev._kernel.dispatch.parameters import MISSING
from aiodev._kernel.dispatch.signature import ARRAY, ARRAYS, COMPLEX, READ
from aiodev._memory.buffer import record_torn

if TYPE_CHECKING:
    from aiodev._kernel.analysis.bounds import Access
    from aiodev._kernel.dispatch.specializations import Specialization

__all__ = ["SUBMISSION_NAMES", "bound_call_maker", "define", "make_call", "renew_call", "submission"]

#: The site of the caller, as ``sites.here(1)`` has it, without the cost of a call.
_SITE = [
    "_from = _getframe(1)",
    "_site = _site_of(id(_from.f_code))",
    "_site = _site + _from.f_lasti if _site else _outside(_from)",
]
SITE_NAMES: dict[str, Any] = {
    "_getframe": sys._getframe,
    "_site_of": callsites.site_of,
    "_outside": callsites.outside,
}
#: What lines of a submission name.
SUBMISSION_NAMES: dict[str, Any] = {**SITE_NAMES, "_record_torn": record_torn}
#: What a branch compares: of a number, of an array.
_KINDS = ("{0}.__class__", "{0}._form.key")
_COMPLETION_NAMES: dict[str, Any] = {"_Completion": Completion, "_new": object.__new__}
#: As ``Completion(_timeline, _value)``, at half the cost.
_RETURN = [
    "_done = _new(_Completion)",
    "_done._timeline = _timeline",
    "_done._value = _value",
    "_done._outcome = None",
    "return _done",
]


def make_call(
    name: str, ndim: int, parameters: Sequence[inspect.Parameter], slow: Callable[..., Any]
) -> FunctionType:
    """The call function of a kernel: ``call(config, *arguments)``.

    ``config`` is a ``LineConfig`` for one dimension, else a ``LaunchConfig``. ``slow(config, arguments)`` launches what
    :func:`renew_call` has given it no branch for: as yet, anything.
    """
    namespace: dict[str, Any] = {
        "_context": context.current, "_current": current_stream, "_join": b"".join, "_slow": slow, "_branches": [],
        "__name__": __name__,
        "_Errors": (AttributeError, struct.error, OverflowError, TypeError, NameError), **SUBMISSION_NAMES, **_COMPLETION_NAMES,
    }  # fmt: skip
    for parameter in parameters:
        default = parameter.default is not inspect.Parameter.empty
        namespace[f"_default_{parameter.name}"] = parameter.default if default else MISSING
    made = _defined(name, ndim, parameters, (), namespace, {})
    return FunctionType(made.__code__, namespace, name, made.__defaults__)


def renew_call(
    call: FunctionType, ndim: int, parameters: Sequence[inspect.Parameter], specializations: Sequence[Specialization]
) -> None:
    """Give a call function branches for these specializations, which are loaded, and of one pattern; by one thread at a time.

    It stays the same function, since launchers that were kept, ``kernel[n]``, have it. Other threads may be within its code,
    old or new: what is named is never given another meaning. Names that are gone, before all branches, lead to the slow way.
    """
    namespace = call.__globals__
    branches: dict[str, Any] = {}
    made = _defined(call.__name__, ndim, parameters, specializations, namespace, branches)
    namespace.update(branches)
    call.__code__ = made.__code__
    for name in namespace["_branches"]:
        del namespace[name]
    namespace["_branches"] = list(branches)


_generations = itertools.count()


def _defined(
    name: str,
    ndim: int,
    parameters: Sequence[inspect.Parameter],
    specializations: Sequence[Specialization],
    namespace: dict[str, Any],
    branches: dict[str, Any],
) -> FunctionType:
    """The code of a call function, as another function; ``branches`` is given what only these name."""
    names = [parameter.name for parameter in parameters]
    signature = ["_config", *(f"{own}=_default_{own}" for own in names)]
    lines = [f"def {name}({', '.join(signature)}, *_extra):"]
    if specializations:
        lines += _fast_path(ndim, names, specializations, branches)
    lines.append(f"    return _slow(_config, ({''.join(f'{own}, ' for own in names)}*_extra,))")
    made: FunctionType = define(f"<aiodev launch of {name}>", lines, dict(namespace))[name]
    return made


@functools.cache
def bound_call_maker(kinds: str) -> Callable[..., Callable[[], Completion[None]]]:
    """Makes the call of a bound launch of arrays that are used so (``ARRAY`` or ``READ``, one for each).

    It is ``make(loading, stream, entry, size, block, slow, *buffers)``; ``slow(site)`` launches until the code is there.
    """
    buffers = [f"b{position}" for position in range(len(kinds))]
    call = ["if not loading.ready:", "    return slow(_outside(_getframe(1)))", *_SITE]
    launch = "stream._launch(entry, size, block, _site)"
    call += ["_timeline = stream.timeline", *submission([(launch, list(zip(buffers, kinds, strict=True)))])]
    call += _RETURN
    parameters = ", ".join(("loading", "stream", "entry", "size", "block", "slow", *buffers))
    lines = [f"def make({parameters}):", "    def call():"]
    lines += [f"        {line}" for line in call]
    lines.append("    return call")
    namespace: dict[str, Any] = {**SUBMISSION_NAMES, **_COMPLETION_NAMES}
    make: Callable[..., Callable[[], Completion[None]]] = define(f"<aiodev bound launch, {kinds}>", lines, namespace)["make"]
    return make


def define(filename: str, lines: Iterable[str], namespace: dict[str, Any]) -> dict[str, Any]:
    """Execute generated source; tracebacks show its lines."""
    source = "\n".join(lines) + "\n"
    namespace["__name__"] = __name__
    exec(compile(source, filename, "exec"), namespace)
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    return namespace


def submission(launches: Iterable[tuple[str, Sequence[tuple[str, str]]]]) -> list[str]:
    """Source lines that launch on ``_timeline``, and note which buffers each launch uses: expressions, ``ARRAY`` or ``READ``.

    ``_value`` is the number of the last launch then.
    """
    lines, every = ["try:"], list[tuple[str, str]]()
    for launch, buffers in launches:
        every += buffers
        lines.append(f"    _value = {launch}")
        for buffer, kind in buffers:
            lines.append(f"    _buffer = {buffer}")
            lines += [f"    {line}" for line in _record_use(kind)]
    written, read = ("".join(f"{buffer}, " for buffer, use in every if use == kind) for kind in (ARRAY, READ))
    return [
        *lines,
        "except BaseException as _error:",
        f"    _record_torn(_error, _timeline, ({written}), ({read}))",
        "    raise",
    ]


def _record_use(kind: str) -> list[str]:
    """Note that operation ``_value`` of ``_timeline`` uses ``_buffer``, as :class:`Buffer` notes it."""
    timeline, value, method = (
        ("_writer", "_written", "_record_write") if kind == ARRAY else ("_reader", "_read", "_record_read")
    )
    return [
        f"if _buffer.{timeline} is _timeline:",
        f"    if _value > _buffer.{value}:",  # another thread's later launch may have been faster here
        f"        _buffer.{value} = _value",
        "else:",
        f"    _buffer.{method}(_timeline, _value)",
    ]


def _fast_path(ndim: int, names: list[str], specializations: Sequence[Specialization], namespace: dict[str, Any]) -> list[str]:
    pattern = specializations[0].signature.pattern
    arrays = {name: kind for name, kind in zip(names, pattern, strict=True) if kind in ARRAYS}
    lines = ["    try:"]
    size = "_n0" if ndim == 1 else "_size"
    if ndim == 1:
        lines += [
            "        if _config.__class__ is int:",
            "            _n0 = _config",
            "            _stream = _context().stream or _current()",
            "        else:",
            "            _n0, _stream = _config",
        ]
    else:
        lines += [
            f"        _size, ({', '.join(f'_n{d}' for d in range(ndim))}), _stream = _config",
            "        if _stream is None:",
            "            _stream = _context().stream or _current()",
        ]
    if len(specializations) > 1:
        lines.append("        _device = _stream.device")
        lines += [f"        _key_{name} = {_KINDS[True].format(name)}" for name in arrays]
        lines += [f"        _class_{name} = {name}.__class__" for name in names if name not in arrays]
    lines += _branches(ndim, names, specializations, namespace)
    packed = "".join(f", {name}._packed or {name}._pack()" for name in arrays)
    block = f"_join((_words{packed}))" if arrays else "_words"
    lines += [
        "    except _Errors:",
        "        _entry = None",
        f"    if _entry is not None and {size} >= 0 and not _extra:",
        *(f"        {line}" for line in _SITE),
    ]
    launch = f"_stream._launch(_entry, {size}, {block}, _site)"
    uses = [(f"{name}._buffer", kind) for name, kind in arrays.items()]
    lines += [f"        {line}" for line in ("_timeline = _stream.timeline", *submission([(launch, uses)]), *_RETURN)]
    return lines


def _branches(ndim: int, names: list[str], specializations: Sequence[Specialization], namespace: dict[str, Any]) -> list[str]:
    """Set ``_entry`` and ``_words`` for the variant that these arguments are of; ``_entry`` is None for none."""
    pattern = specializations[0].signature.pattern
    lines: list[str] = []
    test = "if"
    generation = next(_generations)
    for place, specialization in enumerate(specializations):
        number = f"{generation}_{place}"
        namespace[f"_pack{number}"] = specialization.signature.pack
        namespace[f"_entry{number}"] = specialization.loading.entry
        namespace[f"_device{number}"] = specialization.device
        conditions = [f"{'_device' if len(specializations) > 1 else '_stream.device'} is _device{number}"]
        numbers = [f"_n{d}" for d in range(ndim)]
        for name, kind, key in zip(names, pattern, specialization.keys, strict=True):
            namespace[f"_is{number}_{name}"] = key
            seen = ("_key_{}" if kind in ARRAYS else "_class_{}") if len(specializations) > 1 else _KINDS[kind in ARRAYS]
            seen = seen.format(name)
            conditions.append(f"{seen} is _is{number}_{name}")
            if kind not in ARRAYS:
                numbers += [f"{name}.real", f"{name}.imag"] if kind == COMPLEX else [name]
        entry = f"_entry{number}"
        if specialization.bounds:  # beyond an array: the slow way knows what to say, or that nothing runs
            beyond = " or ".join(_beyond(names, access) for access in specialization.bounds)
            entry = f"None if {beyond} else {entry}"
        lines += [
            f"        {test} {' and '.join(conditions)}:",
            f"            _entry = {entry}",
            f"            _words = _pack{number}({', '.join(numbers)})",
        ]
        test = "elif"
    return [*lines, "        else:", "            _entry = None"]


def _beyond(names: list[str], access: Access) -> str:
    """Whether the launch is longer than the dimension of the array that its index goes along."""
    length = f"_n{access.axis} + {access.offset}" if access.offset else f"_n{access.axis}"
    return f"{length} > {names[access.place]}._form.shape[{access.dimension}]"

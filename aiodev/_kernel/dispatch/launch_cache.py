"""Launches by the layouts of what they are given: the quick way through functions of arrays.

**Problem.** A function such as ``add(x, y, out=out)`` finds out at every call what follows from its arguments' layouts alone:
a kernel, lengths, views, numbers. For small arrays that costs several times what it takes to submit and to compute.

**Invariants.**

1.  An array's *form* is one object for all arrays of the same device, dtype, shape, strides and writability, told from others
    by identity. So a launch that is found under its operands' forms, and the classes of those that are numbers, fits them:
    entry, size, numbers and views are what the function would find out again.
2.  Only addresses and the values of numbers are the operands' own, so only they are put into the block anew.
3.  There may be two forms of the same content, since tables are bounded and emptied when they are full. That is found out
    again, and is never wrong.
4.  What is remembered is ready to run, and belongs to this process: a forked child starts with nothing.
5.  Scratch is no launch's but the one that it was allocated for: launches of one kind may run at the same time.
"""

from __future__ import annotations

import functools
import math
import struct
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NoReturn

from aiodev._array.array import Array, Key, make_array
from aiodev._array.dtypes import DType
from aiodev._array.layout import extent
from aiodev._core import context
from aiodev._core.at_fork import in_child
from aiodev._core.streams.completion import Completion
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.timeline import Timeline
from aiodev._kernel.dispatch.launch import SITE_NAMES, define, stamp
from aiodev._kernel.dispatch.signature import ARRAY, ARRAYS, COMPLEX, FORMATS
from aiodev._kernel.dispatch.specializations import Specialization
from aiodev._kernel.kernel import Kernel
from aiodev._memory.allocators import allocator_of
from aiodev._memory.buffer import Buffer

__all__ = ["LaunchCache"]

_caches: weakref.WeakSet[LaunchCache] = weakref.WeakSet()
_ADDRESS_BYTES = 8
#: What is taken for scratch, how the arrays in it are aligned, and up to how many bytes it lies behind a new result: an
#: allocation takes as long as the rest.
_SCRATCH, _ALIGNMENT, _BEHIND = -1, 64, 1 << 12
#: Launches that are remembered as one, at most.
_MOST_STEPS = 16
#: A kernel, what it is launched over, its arguments, and which operand each of them is.
Step = tuple[Kernel, int | tuple[int, ...], Sequence[Any], Sequence[int | None]]
#: Of an argument block: bytes, or how a number is packed, and the expression of its value.
_Piece = bytes | tuple[str, str]
#: Takes operands and a result, or None for one, and returns the result.
_Repeated = Callable[..., Array | None]


class LaunchCache:
    """Remembers what a function of arrays launches, for each combination of layouts that it is called with.

    For functions whose work is a launch, or a few, that follow from the layouts of their arguments: shapes, strides, dtypes
    and devices. ``repeat`` submits what ``launch`` or ``launch_all`` was told for operands of the same layouts, wherever they
    lie, for little more than plain launches cost. Any thread may call it.

    Args:
        operands: how many the function has besides its result: arrays, or numbers.
        most: combinations that are remembered; when there are more, all are forgotten.

    Attributes:
        repeat: ``repeat(key, *operands, out)``, a plain function; submits to the current stream of the operands' device and
            returns ``out``, or a new array where ``out`` is None. None where it does not know what to submit. ``key``:
            whatever else decides, such as an axis. What equals it is the same to the cache, as 1.0 and True are to 1; where
            that matters, the type is another part of the key.

    Example:
        >>> import aiodev
        >>> @aiodev.kernel
        ... def scale(i, factor, x, out):
        ...     out[i] = factor * x[i]
        >>> launches = aiodev.LaunchCache(operands=2)
        >>> def scaled(factor, x, out=None):  # of arrays of any shape
        ...     found = launches.repeat(None, factor, x, out)
        ...     if found is not None:
        ...         return found
        ...     made = out is None
        ...     out = aiodev.empty_like(x) if made else out
        ...     args = factor, x.reshape(-1), out.reshape(-1)
        ...     launches.launch(None, (factor, x), out, scale, x.size, args, takes=(0, 1, 2), made=made)
        ...     return out
        >>> x = aiodev.ones((2, 3), device="cpu")
        >>> for _ in range(3):
        ...     x = scaled(2.0, x)
        >>> x.numpy_blocking()
        array([[8., 8., 8.],
               [8., 8., 8.]])
    """

    repeat: Callable[..., Array | None]

    def __init__(self, operands: int, most: int = 1024) -> None:
        self._most = most
        self._known: dict[tuple[Any, ...], _Repeated] = {}
        self._met: dict[tuple[Any, ...], None] = {}  # once
        self.repeat = _make_finder(operands)(self, self._known)
        _caches.add(self)

    def __reduce__(self) -> NoReturn:
        """Launches hold code and memory of this process: they are not copied and not pickled."""
        raise TypeError("launch caches are not pickled or copied: they belong to their process; make one there")

    def __repr__(self) -> str:
        return f"<aiodev.LaunchCache of {len(self._known)} launches>"

    def launch(
        self,
        key: Hashable,
        operands: Sequence[Any],
        out: Array,
        kernel: Kernel,
        shape: int | tuple[int, ...],
        args: Sequence[Any],
        takes: Sequence[int | None],
        *,
        made: bool,
    ) -> Completion[None]:
        """Launch, and remember it from the second time on.

        Args:
            key: as for ``repeat``.
            operands: those that ``repeat`` was called with.
            out: the result.
            kernel: what is launched, on the current stream of the result's device.
            shape: over what.
            args: of the kernel, all of them.
            takes: for each of them which operand it is, or their number for the result: the number itself, if need be as
                another type; or a view of the array. None where it is fixed; a fixed array must be
                filled already, since launches that repeat it, on other streams too, do not wait for what fills it. -1 for
                scratch, memory whose contents nobody reads before or after, or any view of it: each launch has its own. With
                an array that is none of these, such as a packed copy, it is launched, and not remembered.
            made: whether the result is new, as none was given.

        Raises:
            LaunchError: an argument does not fit; it is named.
        """
        return self.launch_all(key, operands, out, [(kernel, shape, args, takes)], made=made)

    def launch_all(
        self,
        key: Hashable,
        operands: Sequence[Any],
        out: Array,
        steps: Sequence[Step],
        *,
        made: bool,
        more: Sequence[Array] = (),
    ) -> Completion[None]:
        """Launch one kernel after the other, and remember them all from the second time on; the last one's completion.

        Args:
            steps: of each launch ``kernel, shape, args, takes``, as for :meth:`launch`. Scratch that is an argument of several
                is the same for all of them, and so are views of it: what one writes, the next ones read.
            more: further results, which are always new: those that come after the first one in the numbers of operands.
                ``repeat`` then returns a tuple.
        """
        case = key, *map(_form_of, operands), _form_of(None if made else out)
        seen = case in self._met
        stream = current_stream(out.device)
        for kernel, shape, args, _ in steps:
            lengths = shape if isinstance(shape, tuple) else (shape,)
            completion = kernel[(*lengths, stream)](*args)
        if not seen:
            self._enter(self._met, case, None)
        elif len(steps) <= _MOST_STEPS and all(_can_follow((*operands, out, *more), *step[2:]) for step in steps):
            specializations = [kernel._specializations.of(tuple(args), out.device) for kernel, _, args, _ in steps]
            if all(specialization.loading.ready for specialization in specializations):
                self._enter(self._known, case, _make_launch(specializations, steps, (*operands, out), made, more))
                self._met.pop(case, None)
        return completion

    def _enter(self, table: dict[tuple[Any, ...], Any], case: tuple[Any, ...], value: Any) -> None:
        if len(table) >= self._most:
            table.clear()
        table[case] = value

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
        self._met.clear()


def _form_of(operand: Any) -> Any:
    return (operand._form or operand._find_form()) if operand.__class__ is Array else operand.__class__


def _can_follow(operands: Sequence[Any], args: Sequence[Any], takes: Sequence[int | None]) -> bool:
    """Whether the arrays that are taken are views of the operands."""
    for arg, take in zip(args, takes, strict=True):
        if take is not None and take != _SCRATCH and isinstance(arg, Array):
            operand = operands[take]
            if operand.__class__ is not Array or arg._buffer is not operand._buffer:
                return False
    return True


@functools.cache
def _make_finder(operands: int) -> Callable[[LaunchCache, dict[tuple[Any, ...], _Repeated]], _Repeated]:
    """Makes the ``repeat`` of a cache of functions of so many operands."""
    names = [f"x{k}" for k in range(operands + 1)]
    form = "({0}._form or {0}._find_form()) if {0}.__class__ is Array else {0}.__class__"
    lines = [
        "def make(cache, known):",
        "    find = known.get",
        f"    def repeat(key, {', '.join(names)}):",
        "        try:",
        f"            launch = find(({', '.join(('key', *map(form.format, names)))}))",
        "        except TypeError:",  # the key cannot be hashed: the function may know what is wrong
        "            return None",
        f"        return launch and launch({', '.join(names)})",
        "    repeat.cache = cache",  # which lives as long, and is emptied after a fork
        "    return repeat",
    ]
    make: Callable[..., _Repeated] = define(f"<aiodev repeat, {operands} operands>", lines, {"Array": Array})["make"]
    return make


def _make_launch(
    specializations: Sequence[Specialization], steps: Sequence[Step], operands: Sequence[Any], made: bool, more: Sequence[Array]
) -> _Repeated:
    """The launches of variants with operands, the first result among them, and ``more`` results, of the forms of these."""
    constants: list[Any] = []

    def constant(value: Any) -> str:
        constants.append(value)
        return f"c{len(constants) - 1}"

    out, scratch = operands[-1], _scratch_of(steps)
    room = sum(map(_aligned, scratch.values()))
    behind = made and room <= _BEHIND
    places, end = {}, _aligned(out.nbytes) if behind else 0
    for buffer, nbytes in scratch.items():
        places[buffer] = end - buffer.address
        end += _aligned(nbytes)
    launches = []
    for specialization, (_, shape, args, takes) in zip(specializations, steps, strict=True):
        lengths = shape if isinstance(shape, tuple) else (shape,)
        block, stamps = _block(specialization, lengths, args, takes, (*operands, *more), places, constant)
        entry, size = constant(specialization.loading.entry), constant(math.prod(lengths))
        launches.append((entry, size, block, stamps))
    results = [(end if room and behind else out.nbytes, out)] if made else []
    results += [(result.nbytes, result) for result in more]
    forms = tuple(
        (f"x{len(operands) - made + k}", ", ".join(map(constant, (nbytes, new._shape, new._dtype, _form_of(new)))))
        for k, (nbytes, new) in enumerate(results)
    )
    own = constant(room) if room and not behind else ""
    make = _make_maker(len(operands), len(more), len(constants), forms, bool(scratch), own, tuple(launches))
    return make([specialization.loading for specialization in specializations], specializations[0].device, *constants)


def _block(
    specialization: Specialization,
    shape: tuple[int, ...],
    args: Sequence[Any],
    takes: Sequence[int | None],
    operands: Sequence[Any],
    scratch: dict[Buffer, int],
    constant: Callable[[Any], str],
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What makes the block of a launch's arguments, and the buffers that it uses; ``scratch``: how far each of it moves.

    All but addresses and numbers follow from the forms, and is packed as the bytes that it is.
    """
    numbers: list[_Piece] = [struct.pack(f"<{len(shape)}q", *shape)]
    arrays: list[_Piece] = []
    stamps = []
    signature = specialization.signature
    for arg, descriptor, kind, take in zip(args, signature.descriptors, signature.pattern, takes, strict=True):
        if kind in ARRAYS:
            packed = arg._packed or arg._pack()
            if take == _SCRATCH:
                place = constant(arg._address + scratch[arg._buffer])
                arrays += [("q", f"scratch.address + {place}"), packed[_ADDRESS_BYTES:]]
                continue
            stamps.append((f"x{take}._buffer" if take is not None else constant(arg._buffer), kind))
            if take is None:
                arrays.append(packed)
            else:
                distance = arg._address - operands[take]._address
                arrays += [
                    ("q", f"x{take}._address" + (f" + {constant(distance)}" if distance else "")),
                    packed[_ADDRESS_BYTES:],
                ]
            continue
        code = FORMATS[descriptor]
        if take is not None:
            numbers.append((code, f"x{take}.real, x{take}.imag" if kind == COMPLEX else f"x{take}"))
        else:
            numbers.append(struct.pack(f"<{code}", *((arg.real, arg.imag) if kind == COMPLEX else (arg,))))
    pieces: list[_Piece] = []
    for piece in (*numbers, *arrays):
        if isinstance(piece, bytes) and pieces and isinstance(pieces[-1], bytes):
            pieces[-1] += piece
        elif piece:  # of an array without dimensions there is nothing but its address
            pieces.append(piece)
    layout = "".join(f"{len(piece)}s" if isinstance(piece, bytes) else piece[0] for piece in pieces)
    values = ", ".join(constant(piece) if isinstance(piece, bytes) else piece[1] for piece in pieces)
    return f"{constant(struct.Struct(f'<{layout}').pack)}({values})", tuple(stamps)


@functools.lru_cache(4096)
def _make_maker(
    count: int,
    more: int,
    constants: int,
    forms: tuple[tuple[str, str], ...],
    has_scratch: bool,
    own: str,
    launches: tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...],
) -> Callable[..., _Repeated]:
    """Makes launches whose results, scratch, blocks and notes in buffers are made alike; ``loading`` is kept.

    ``forms`` says which results are new, and what of. Scratch is of as many bytes as ``own`` says, or is in the buffer of the
    result. Of each launch: entry, size, block, and the buffers that it uses.
    """
    out = f"x{count - 1}"
    parameters = ", ".join(("loading", "device", *(f"c{k}" for k in range(constants))))
    body = [
        "stream = context().stream",
        "try:",
        "    if stream is None or stream.device is not device:",
        "        stream = current(device)",
        *(f"    {name} = allocate({form}, stream)" for name, form in forms),
        *([f"    scratch = {f'allocate_scratch({own}, stream.timeline)' if own else f'{out}._buffer'}"] if has_scratch else ()),
        *(f"    block{k} = {block}" for k, (_, _, block, _) in enumerate(launches)),
        "except Errors:",  # a number does not fit its type: the function may know what to do, or will complain
        "    return None",
        # The function that has called `repeat` is a library's, as a rule, and what called that is the user's.
        "_from = _getframe(2)",
        "_site = _index_of(id(_from.f_code))",
        "if _site == 0 and (_back := _from.f_back) is not None:",
        "    _from, _site = _back, _index_of(id(_back.f_code))",
        "_site = _site << 32 | _from.f_lasti if _site else _outside(_from)",
    ]
    for k, (entry, size, _, stamps) in enumerate(launches):
        body.append(f"_value = stream._launch({entry}, {size}, block{k}, _site)")
        if k == 0:
            body.append("_timeline = stream.timeline")
        for buffer, kind in stamps:
            body.append(f"_buffer = {buffer}")
            body += stamp("_buffer", kind)
    if own:
        body += stamp("scratch", ARRAY)
    lines = [f"def make({parameters}):", f"    def launch({', '.join(f'x{k}' for k in range(count))}):"]
    results = ", ".join(f"x{count - 1 + k}" for k in range(1 + more))
    lines += [f"        {line}" for line in (*body, f"return {results}")]
    lines += ["    launch.loading = loading", "    return launch"]
    names = {
        **SITE_NAMES, "context": context.current, "current": current_stream, "allocate": _allocate,
        "allocate_scratch": _allocate_scratch, "Errors": (struct.error, OverflowError, TypeError),
    }  # fmt: skip
    make: Callable[..., _Repeated] = define(f"<aiodev repeated launch, {count - 1} operands>", lines, names)["make"]
    return make


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _scratch_of(steps: Sequence[Step]) -> dict[Buffer, int]:
    """What is scratch, each once, and the bytes up to where it is used."""
    found: dict[Buffer, int] = {}
    for _, _, args, takes in steps:
        for arg, take in zip(args, takes, strict=True):
            if take == _SCRATCH:
                end = arg._address - arg._buffer.address + extent(arg._layout, arg.itemsize)[1]
                found[arg._buffer] = max(end, found.get(arg._buffer, 0))
    return found


def _allocate(nbytes: int, shape: tuple[int, ...], dtype: DType, form: Key, stream: Stream) -> Array:
    timeline = stream.timeline
    buffer = allocator_of(timeline).allocate(nbytes, timeline)
    array = make_array(buffer, buffer.address, shape, dtype, None, True)
    array._form = form
    return array


def _allocate_scratch(nbytes: int, timeline: Timeline) -> Buffer:
    return allocator_of(timeline).allocate(nbytes, timeline)


def _forget_after_fork() -> None:
    for cache in list(_caches):
        cache.clear()


in_child(_forget_after_fork)

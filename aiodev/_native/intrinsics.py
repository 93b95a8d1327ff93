"""Words of memory, atomics and calls by address, for native code.

An address is a word; a word in memory is at an address that is a multiple of 8. What has a struct is reached by its fields
(:mod:`aiodev._native.fields`), whose accesses are made of these; ``get`` and ``put`` themselves are for raw memory,
such as arguments of kernels.

Memory order is named for what it is used for here: ``load`` acquires, ``store`` releases, and whatever takes part in a
store-then-load handshake (``store_fence``, ``exchange``, ``compare_exchange``, ``fetch_add``) is sequentially
consistent. ``get`` and ``put`` are for words that only one thread at a time can reach.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir

from aiodev._native.compile import External, int32, int64, intrinsic, void
from aiodev._native.fields import Struct
from aiodev._native.objects import OBJECTS, TABLE

_WORD = ir.IntType(64)
_WORD_POINTER = _WORD.as_pointer()


def _pointer(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, _WORD_POINTER)


def _declared(builder: ir.IRBuilder, name: str, result: ir.Type, parameters: list[ir.Type]) -> Any:
    declared = builder.module.globals.get(name)
    return declared or ir.Function(builder.module, ir.FunctionType(result, parameters), name)


@intrinsic
def get(builder: ir.IRBuilder, address: ir.Value) -> Any:
    """The word at ``address``; no order."""
    return builder.load(_pointer(builder, address))


@intrinsic
def put(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> Any:
    """Write the word at ``address``; no order."""
    builder.store(value, _pointer(builder, address))


@intrinsic
def on_stack(builder: ir.IRBuilder, nbytes: ir.Value) -> Any:
    """The address of ``nbytes`` bytes, a constant, that last until the function returns."""
    with builder.goto_entry_block():
        room = builder.alloca(ir.ArrayType(_WORD, nbytes.constant // 8))
    return builder.ptrtoint(room, _WORD)


@intrinsic
def load(builder: ir.IRBuilder, address: ir.Value) -> Any:
    """The word at ``address``; what its writer wrote before is visible."""
    return builder.load_atomic(_pointer(builder, address), "acquire", 8)


@intrinsic
def store(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> Any:
    """Write the word at ``address``; who loads it sees all that was written before."""
    builder.store_atomic(value, _pointer(builder, address), "release", 8)


@intrinsic
def store_fence(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> Any:
    """Write the word at ``address`` before any later load: one half of a store-then-load handshake."""
    builder.store_atomic(value, _pointer(builder, address), "seq_cst", 8)


@intrinsic
def load_fence(builder: ir.IRBuilder, address: ir.Value) -> Any:
    """The word at ``address``, after any earlier ``store_fence``: the other half."""
    return builder.load_atomic(_pointer(builder, address), "seq_cst", 8)


@intrinsic
def exchange(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> Any:
    """Write the word at ``address`` and return what was there."""
    return builder.atomic_rmw("xchg", _pointer(builder, address), value, "seq_cst")


@intrinsic
def fetch_add(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> Any:
    """Add to the word at ``address`` and return what was there."""
    return builder.atomic_rmw("add", _pointer(builder, address), value, "seq_cst")


@intrinsic
def fetch_min(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> Any:
    """Lower the word at ``address`` to ``value`` if it is higher, and return what was there."""
    return builder.atomic_rmw("min", _pointer(builder, address), value, "seq_cst")


@intrinsic
def compare_exchange(builder: ir.IRBuilder, address: ir.Value, expected: ir.Value, value: ir.Value) -> Any:
    """Write ``value`` at ``address`` if ``expected`` is there; whether it was."""
    pair = builder.cmpxchg(_pointer(builder, address), expected, value, "seq_cst", "monotonic")
    return builder.extract_value(pair, 1)


@intrinsic
def pause(builder: ir.IRBuilder) -> Any:
    """Tell the core that this is a spin loop."""
    if platform.machine() in ("x86_64", "AMD64"):
        builder.call(_declared(builder, "llvm.x86.sse2.pause", ir.VoidType(), []), [])


@intrinsic
def call_entry(builder: ir.IRBuilder, code: ir.Value, scratch: ir.Value, *arguments: ir.Value) -> Any:
    """Call a kernel entry by its address; returns its status.

    An entry is ``int32 f(int64 *result, void **excinfo, int64 arguments, int64 lo, int64 hi)``, as numba makes them.
    ``scratch`` is the address of two words: the result, and on failure numba's excinfo.
    """
    function_type = ir.FunctionType(ir.IntType(32), [_WORD_POINTER, _WORD_POINTER, *[_WORD] * len(arguments)])
    result = _pointer(builder, scratch)
    excinfo = _pointer(builder, builder.add(scratch, ir.Constant(_WORD, 8)))
    function = builder.inttoptr(code, function_type.as_pointer())
    return builder.zext(builder.call(function, [result, excinfo, *arguments]), _WORD)


def _clock(builder: ir.IRBuilder, number: int) -> Any:
    """A clock of the system, in ns."""
    with builder.goto_entry_block():
        timespec = builder.alloca(ir.ArrayType(_WORD, 2))
    function = _declared(builder, "clock_gettime", ir.IntType(32), [ir.IntType(32), timespec.type])
    builder.call(function, [ir.Constant(ir.IntType(32), number), timespec])
    pair = builder.load(timespec)
    seconds = builder.mul(builder.extract_value(pair, 0), ir.Constant(_WORD, 1_000_000_000))
    return builder.add(seconds, builder.extract_value(pair, 1))


@intrinsic
def now(builder: ir.IRBuilder) -> Any:
    """The time in ns of ``CLOCK_MONOTONIC``, which is what ``time.perf_counter_ns`` reads."""
    return _clock(builder, 1)


@intrinsic
def thread_time(builder: ir.IRBuilder) -> Any:
    """For how long (ns) this thread has had a core: ``CLOCK_THREAD_CPUTIME_ID``. A call of the system."""
    return _clock(builder, 3)


@intrinsic
def copy_memory(builder: ir.IRBuilder, dst: ir.Value, src: ir.Value, nbytes: ir.Value) -> Any:
    """``memcpy`` between two addresses."""
    pointer = ir.IntType(8).as_pointer()
    function = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, _WORD])
    places = [builder.inttoptr(address, pointer) for address in (dst, src)]
    builder.call(function, [*places, nbytes, ir.Constant(ir.IntType(1), 0)])


@intrinsic
def product(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, overflow: ir.Value) -> Any:
    """``a * b``; where that is no word, the word at the address ``overflow`` is no longer 0."""
    return _exact(builder, builder.smul_with_overflow(a, b), overflow)


@intrinsic
def total(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, overflow: ir.Value) -> Any:
    """``a + b``, likewise."""
    return _exact(builder, builder.sadd_with_overflow(a, b), overflow)


@intrinsic
def double_of(builder: ir.IRBuilder, value: ir.Value) -> Any:
    """The bits of a word's number as ``float64``, rounded to nearest."""
    return builder.bitcast(builder.sitofp(value, ir.DoubleType()), _WORD)


@intrinsic
def single_of(builder: ir.IRBuilder, bits: ir.Value) -> Any:
    """The bits of a number of ``float64`` as ``float32``, rounded to nearest; those of an infinity where it is too large."""
    single = builder.fptrunc(builder.bitcast(bits, ir.DoubleType()), ir.FloatType())
    return builder.zext(builder.bitcast(single, ir.IntType(32)), _WORD)


@intrinsic
def bit_length(builder: ir.IRBuilder, value: ir.Value) -> Any:
    """How many bits a word has that is not negative."""
    return builder.sub(ir.Constant(_WORD, 64), builder.ctlz(value, ir.Constant(ir.IntType(1), 0)))


def _exact(builder: ir.IRBuilder, pair: ir.Value, overflow: ir.Value) -> Any:
    place = _pointer(builder, overflow)
    is_too_large = builder.zext(builder.extract_value(pair, 1), _WORD)
    builder.store(builder.or_(builder.load(place), is_too_large), place)
    return builder.extract_value(pair, 0)


@intrinsic
def bytes_address(builder: ir.IRBuilder, value: ir.Value) -> Any:
    """Address of the first byte of a ``bytes``."""
    # CPython lays a bytes object out as PyVarObject, hash, data; `bytes.__basicsize__` counts the trailing NUL.
    return builder.add(value, ir.Constant(_WORD, bytes.__basicsize__ - 1))


@intrinsic
def bytes_length(builder: ir.IRBuilder, value: ir.Value) -> Any:
    """Number of bytes of a ``bytes``."""
    return builder.load(_pointer(builder, builder.add(value, ir.Constant(_WORD, 16))))


@intrinsic
def given_object(builder: ir.IRBuilder) -> Any:
    """The address of the object that whoever has loaded this code has given it."""
    half = ir.IntType(32)
    place = [ir.Constant(half, 0), ir.Constant(half, len(OBJECTS))]
    return builder.load(builder.gep(builder.module.globals[TABLE], place))


class Timespec(Struct):
    """The C library's ``struct timespec``."""

    seconds: int
    nanoseconds: int


@intrinsic
def clock_wait(builder: ir.IRBuilder, function: ir.Value, semaphore: ir.Value, until: ir.Value) -> Any:
    """Wait for a semaphore until a time by ``now``, a :class:`Timespec`; 0 when it was posted before that.

    ``function`` is the address of ``sem_clockwait``: code that is kept, or made ahead, may run with a C library that lacks it.
    """
    half = ir.IntType(32)
    code = builder.inttoptr(function, ir.FunctionType(half, [_WORD, half, _WORD]).as_pointer())
    return builder.sext(builder.call(code, [semaphore, ir.Constant(half, 1), until]), _WORD)


# Symbols of the C library that native code calls.
sem_wait = External("sem_wait", int32(int64))
sem_post = External("sem_post", int32(int64))
sched_yield = External("sched_yield", int32())
sched_getcpu = External("sched_getcpu", int32())
sched_getaffinity = External("sched_getaffinity", int32(int32, int64, int64))
sched_setaffinity = External("sched_setaffinity", int32(int32, int64, int64))
malloc = External("malloc", int64(int64))
aligned_alloc = External("aligned_alloc", int64(int64, int64))
free = External("free", void(int64))
c_write = External("write", int64(int32, int64, int64))
c_poll = External("poll", int32(int64, int64, int32))

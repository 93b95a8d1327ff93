"""Words of shared memory, atomics and calls by address, for nopython code.

numba has no atomics on the CPU and cannot call a function whose address is only known at run time. These intrinsics emit
the LLVM instructions directly. An address is an ``int64``; a word is an ``int64`` at an address that is a multiple of 8.

Memory order is named for what it is used for here: ``load`` acquires, ``store`` releases, and whatever takes part in a
store-then-load handshake (``store_fence``, ``exchange``, ``compare_exchange``, ``fetch_add``) is sequentially
consistent. ``get`` and ``put`` are for words that only one thread at a time can reach.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils, errors
from numba.extending import NativeValue, intrinsic, models, register_model, unbox

_WORD = ir.IntType(64)
_WORD_POINTER = _WORD.as_pointer()
_i64 = types.int64


def _pointer(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, _WORD_POINTER)


@intrinsic
def get(typing_context, address):
    """The word at ``address``; no order."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(builder, args[0]))

    return _i64(_i64), generate


@intrinsic
def put(typing_context, address, value):
    """Write the word at ``address``; no order."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], _pointer(builder, args[0]))
        return context.get_dummy_value()

    return types.void(_i64, _i64), generate


@intrinsic
def on_stack(typing_context, nbytes):
    """The address of ``nbytes`` bytes, a constant, that last until the function returns."""
    if not isinstance(nbytes, types.IntegerLiteral):
        raise errors.RequireLiteralValue("the size of what is on the stack must be a constant")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        room = cgutils.alloca_once(builder, ir.ArrayType(_WORD, nbytes.literal_value // 8))
        return builder.ptrtoint(room, _WORD)

    return _i64(nbytes), generate


@intrinsic
def load(typing_context, address):
    """The word at ``address``; what its writer wrote before is visible."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0]), "acquire", 8)

    return _i64(_i64), generate


@intrinsic
def store(typing_context, address, value):
    """Write the word at ``address``; who loads it sees all that was written before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _pointer(builder, args[0]), "release", 8)
        return context.get_dummy_value()

    return types.void(_i64, _i64), generate


@intrinsic
def store_fence(typing_context, address, value):
    """Write the word at ``address`` before any later load: one half of a store-then-load handshake."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _pointer(builder, args[0]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(_i64, _i64), generate


@intrinsic
def load_fence(typing_context, address):
    """The word at ``address``, after any earlier ``store_fence``: the other half."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0]), "seq_cst", 8)

    return _i64(_i64), generate


@intrinsic
def exchange(typing_context, address, value):
    """Write the word at ``address`` and return what was there."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("xchg", _pointer(builder, args[0]), args[1], "seq_cst")

    return _i64(_i64, _i64), generate


@intrinsic
def fetch_add(typing_context, address, value):
    """Add to the word at ``address`` and return what was there."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, args[0]), args[1], "seq_cst")

    return _i64(_i64, _i64), generate


@intrinsic
def fetch_min(typing_context, address, value):
    """Lower the word at ``address`` to ``value`` if it is higher, and return what was there."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("min", _pointer(builder, args[0]), args[1], "seq_cst")

    return _i64(_i64, _i64), generate


@intrinsic
def compare_exchange(typing_context, address, expected, value):
    """Write ``value`` at ``address`` if ``expected`` is there; whether it was."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pair = builder.cmpxchg(_pointer(builder, args[0]), args[1], args[2], "seq_cst", "monotonic")
        return builder.extract_value(pair, 1)

    return types.boolean(_i64, _i64, _i64), generate


@intrinsic
def pause(typing_context):
    """Tell the core that this is a spin loop."""
    name = {"x86_64": "llvm.x86.sse2.pause", "AMD64": "llvm.x86.sse2.pause"}.get(platform.machine())

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if name is not None:
            function_type = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def call_entry(typing_context, code, scratch, arguments, lo, hi):
    """Call a kernel entry by its address; returns its status.

    An entry is the native symbol of an ``njit`` function, ``int32 f(int64 *result, void **excinfo, int64 arguments,
    int64 lo, int64 hi)``. ``scratch`` is the address of two words: the result, and on failure numba's excinfo.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code, scratch, *rest = args
        function_type = ir.FunctionType(ir.IntType(32), [_WORD_POINTER, _WORD_POINTER, _WORD, _WORD, _WORD])
        result = _pointer(builder, scratch)
        excinfo = _pointer(builder, builder.add(scratch, ir.Constant(_WORD, 8)))
        function = builder.inttoptr(code, function_type.as_pointer())
        return builder.zext(builder.call(function, [result, excinfo, *rest]), _WORD)

    return _i64(_i64, _i64, _i64, _i64, _i64), generate


def _clock(number: int) -> Any:
    """The code of a function that reads a clock of the system, in ns."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        timespec = cgutils.alloca_once(builder, ir.ArrayType(_WORD, 2))
        function_type = ir.FunctionType(ir.IntType(32), [ir.IntType(32), timespec.type])
        function = cgutils.get_or_insert_function(builder.module, function_type, "clock_gettime")
        builder.call(function, [ir.Constant(ir.IntType(32), number), timespec])
        pair = builder.load(timespec)
        seconds = builder.mul(builder.extract_value(pair, 0), ir.Constant(_WORD, 1_000_000_000))
        return builder.add(seconds, builder.extract_value(pair, 1))

    return generate


@intrinsic
def now(typing_context):
    """The time in ns of ``CLOCK_MONOTONIC``, which is what ``time.perf_counter_ns`` reads."""
    return _i64(), _clock(1)


@intrinsic
def thread_time(typing_context):
    """For how long (ns) this thread has had a core: ``CLOCK_THREAD_CPUTIME_ID``. A call of the system."""
    return _i64(), _clock(3)


@intrinsic
def copy_memory(typing_context, dst, src, nbytes):
    """``memcpy`` between two addresses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte_pointer = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(
            builder,
            builder.inttoptr(args[0], byte_pointer),
            builder.inttoptr(args[1], byte_pointer),
            args[2],
            1,
        )
        return context.get_dummy_value()

    return types.void(_i64, _i64, _i64), generate


class BytesType(types.Type):
    """A ``bytes`` argument as (address of its data, length), with no buffer protocol and no copy."""

    def __init__(self) -> None:
        super().__init__(name="aiodev.bytes")


bytes_type = BytesType()


@register_model(BytesType)
class _BytesModel(models.StructModel):
    def __init__(self, data_model_manager: Any, fe_type: Any) -> None:
        members = [("address", types.int64), ("nbytes", types.int64)]
        super().__init__(data_model_manager, fe_type, members)


@unbox(BytesType)
def _unbox_bytes(typ: Any, obj: Any, c: Any) -> NativeValue:
    # CPython lays a bytes object out as PyVarObject, hash, data; `bytes.__basicsize__` counts the trailing NUL. The caller
    # holds the object for the length of the call. The type is checked, since anything else would be read out of bounds.
    value = cgutils.create_struct_proxy(typ)(c.context, c.builder)
    base = c.builder.ptrtoint(obj, _WORD)
    found = c.builder.load(_pointer(c.builder, c.builder.add(base, ir.Constant(_WORD, 8))))
    expected = c.builder.ptrtoint(c.pyapi.get_c_object("PyBytes_Type"), _WORD)
    is_error = c.builder.icmp_unsigned("!=", found, expected)
    with c.builder.if_then(is_error, likely=False):
        c.pyapi.err_set_string("PyExc_TypeError", "arguments must be bytes")
    value.address = c.builder.add(base, ir.Constant(_WORD, bytes.__basicsize__ - 1))
    value.nbytes = c.builder.load(_pointer(c.builder, c.builder.add(base, ir.Constant(_WORD, 16))))
    return NativeValue(value._getvalue(), is_error=is_error)


@intrinsic
def bytes_address(typing_context, value):
    """Address of the first byte."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return cgutils.create_struct_proxy(bytes_type)(context, builder, value=args[0]).address

    return _i64(bytes_type), generate


@intrinsic
def bytes_length(typing_context, value):
    """Number of bytes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return cgutils.create_struct_proxy(bytes_type)(context, builder, value=args[0]).nbytes

    return _i64(bytes_type), generate


# Symbols of the C library that nopython code calls.
sem_wait = types.ExternalFunction("sem_wait", types.int32(types.int64))
sem_post = types.ExternalFunction("sem_post", types.int32(types.int64))
sched_yield = types.ExternalFunction("sched_yield", types.int32())
sched_getcpu = types.ExternalFunction("sched_getcpu", types.int32())
sched_getaffinity = types.ExternalFunction("sched_getaffinity", types.int32(types.int32, types.int64, types.int64))
sched_setaffinity = types.ExternalFunction("sched_setaffinity", types.int32(types.int32, types.int64, types.int64))
malloc = types.ExternalFunction("malloc", types.int64(types.int64))
aligned_alloc = types.ExternalFunction("aligned_alloc", types.int64(types.int64, types.int64))
free = types.ExternalFunction("free", types.void(types.int64))
c_write = types.ExternalFunction("write", types.int64(types.int32, types.int64, types.int64))
c_poll = types.ExternalFunction("poll", types.int32(types.int64, types.int64, types.int32))

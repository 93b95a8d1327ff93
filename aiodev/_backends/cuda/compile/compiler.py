"""Kernels for CUDA: numba-cuda compiles an entry and what it calls to a cubin.

It needs no driver and no GPU: the architecture is given. Importing this imports numba-cuda, which takes a second and is not
needed for what the disk cache has (:mod:`aiodev._backends.cuda.compile.image`). See
:mod:`aiodev._backends.cuda.compile.entry_source` for the entry. Around it goes the kernel proper, ``void kernel(fault, value,
word…)``, all parameters 8 bytes:

Arrays' addresses are pointers that alias nothing: what an index writes through one argument, it must not read through another.
So the loads of several rounds can be under way at once, without which no GPU reaches its bandwidth.

-   ``fault`` is the address of the queue's fault record, or 0. If a status stands in it, an operation ahead of this one
    has failed and the kernel returns at once (see :mod:`aiodev._backends.cuda.executor`).
-   A thread whose entry fails writes the status and ``value``, the launch's number on its timeline, unless one stands there.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import cuda
from numba.cuda import cgutils, types
from numba.cuda.compiler import compile_cuda
from numba.cuda.core.compiler_lock import global_compiler_lock
from numba.cuda.core.errors import NumbaError
from numba.cuda.cudadrv import nvvm

from aiodev._backends.compile.refusals import captured_container, check_host_state, returned_value
from aiodev._backends.cuda.compile import lang, stored
from aiodev._backends.cuda.compile.entry_source import entry_source, parameters
from aiodev._backends.cuda.compile.function import device_function
from aiodev._backends.cuda.compile.image import Image
from aiodev._backends.cuda.compile.intrinsics import GRID, advance, array_of, scalar_of
from aiodev._backends.cuda.compile.target import compiling_for, exceptions
from aiodev._core.backend.interface import KernelSpec
from aiodev._core.backend.kernel_arguments import KernelArgument
from aiodev._core.errors import CompileError
from aiodev._core.source_names import absolute

__all__ = ["compile_image"]

#: Bytes of parameters that a kernel can have.
_PARAMETER_BYTES = 4096
#: How an array's address comes to an entry: as a pointer, so that it is known to be global memory.
_ADDRESS = types.CPointer(types.uint8)
_OPTIONS = frozenset({"block", "boundscheck", "fastmath", "grid", "team"})
_WARP, _MOST_THREADS = 32, 1024
#: A comment in the PTX of kernels that can fail, as the optimiser left them.
_FALLIBLE = "aiodev: a thread failed"

lang.install()


def compile_image(spec: KernelSpec, architecture: tuple[int, int]) -> Image:
    """Compile ``spec`` for an architecture, whatever the cache holds.

    Raises:
        CompileError: numba-cuda refused it.
    """
    options = dict(spec.options)
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise CompileError(spec.name, f"no option is called {unknown[0]!r}", location=_first_line(spec))
    block = options.get("block", _WARP)
    if block % _WARP or block > _MOST_THREADS:
        raise CompileError(
            spec.name,
            f"block={block}: expected a multiple of {_WARP} up to {_MOST_THREADS}",
            location=_first_line(spec),
        )
    arguments = spec.parse_arguments()
    words = parameters(spec.ndim, arguments)
    if 8 * (len(words) + 2) > _PARAMETER_BYTES:
        raise CompileError(spec.name, f"its arguments take {8 * len(words)} bytes, of {_PARAMETER_BYTES - 16}")
    check_host_state(spec.name, spec.function)
    boundscheck, fastmath = bool(options.get("boundscheck")), options.get("fastmath", False)
    if not isinstance(fastmath, bool):
        fastmath = set(fastmath)  # flags by their names
    with _explained(spec), global_compiler_lock, compiling_for(architecture, boundscheck):
        stored.install()
        body = device_function(spec.function, fastmath)
        # By itself first, so that what is wrong with the body is said of the body, not of the loop around it.
        compiled = body.compile_device((*[types.int64] * spec.ndim, *map(_numba_type, arguments)))
        returned = compiled.signature.return_type
        if returned is not types.none:
            raise returned_value(spec.name, spec.function, str(returned))
        entry = _entry_function(spec, body, arguments)
        result = compile_cuda(
            entry,
            None,
            tuple(_ADDRESS if is_address else types.int64 for is_address in words),
            forceinline=True,
            fastmath=fastmath,
            nvvm_options={"opt": 3, "fastmath": fastmath is True},
            cc=architecture,
        )
        symbol = _add_kernel(result, spec, words)
        fallible = any(_FALLIBLE in text for text in result.library.get_asm_strs(cc=architecture))
        cubin = result.library.get_cubin(cc=architecture).code
    return Image(bytes(cubin), symbol, exceptions() if fallible else {})


def _entry_function(spec: KernelSpec, body: Any, arguments: list[KernelArgument]) -> Any:
    name = _identifier(spec.name) + "_entry"
    source = entry_source(name, spec.ndim, arguments, team=("team", True) in spec.options)
    filename = f"<aiodev cuda {spec.name} {spec.key[:16]}>"
    namespace: dict[str, Any] = {
        "__name__": __name__,
        "advance": advance,
        "array_of": array_of,
        "barrier": cuda.syncthreads,
        "body": body,
        "scalar_of": scalar_of,
        **GRID,
    }
    namespace.update({f"T{position}": _numba_type(argument) for position, argument in enumerate(arguments)})
    exec(compile(source, filename, "exec"), namespace)
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    return namespace[name]


def _identifier(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)


def _numba_type(argument: KernelArgument) -> Any:
    dtype = stored.number_type(argument.dtype)
    if not argument.is_array:
        return dtype
    return types.Array(dtype, argument.ndim, argument.layout, readonly=argument.readonly)


def _add_kernel(result: Any, spec: KernelSpec, words: list[bool]) -> str:
    """Put the kernel proper around a compiled entry; returns its symbol."""
    library = result.library
    entry = library.get_function(result.fndesc.llvm_func_name)
    entry.linkage = "internal"
    word = ir.IntType(64)
    symbol = f"aiodev_{_identifier(spec.name)}"
    kinds = [ir.IntType(8).as_pointer() if is_address else word for is_address in words]
    kernel = ir.Function(entry.module, ir.FunctionType(ir.VoidType(), [word, word, *kinds]), symbol)
    for parameter, is_address in zip(kernel.args[2:], words, strict=True):
        if is_address:
            parameter.add_attribute("noalias")
    builder = ir.IRBuilder(kernel.append_basic_block("entry"))
    fault, value, *given = kernel.args
    record = builder.inttoptr(fault, word.as_pointer())
    with builder.if_then(builder.icmp_unsigned("!=", fault, ir.Constant(word, 0)), likely=False):
        before = builder.load(record)
        with builder.if_then(builder.icmp_unsigned("!=", before, ir.Constant(word, 0)), likely=False):
            builder.ret_void()
    returned = cgutils.alloca_once(builder, entry.args[0].type.pointee)
    status = builder.call(entry, [returned, *given])
    with builder.if_then(builder.icmp_signed(">", status, ir.Constant(status.type, 0)), likely=False):
        _record_fault(builder, record, builder.zext(status, word), value)
    builder.ret_void()
    nvvm.set_cuda_kernel(kernel)
    nvvm.set_launch_bounds(kernel, dict(spec.options).get("block"))  # else a large block may need too many registers
    library._entry_name = symbol
    library._llvm_strs = None  # the module was made into text when the entry was compiled
    return symbol


def _record_fault(builder: Any, record: Any, status: Any, value: Any) -> None:
    """Write the status, once, on the device and for the host, whose copy of the record is at the third word's address."""
    word = ir.IntType(64)
    mark = ir.InlineAsm(ir.FunctionType(ir.VoidType(), []), f"// {_FALLIBLE}", "", side_effect=True)
    builder.call(mark, [])
    pair = builder.cmpxchg(record, ir.Constant(word, 0), status, "monotonic", "monotonic")
    with builder.if_then(builder.extract_value(pair, 1)):
        host_address = builder.load(builder.gep(record, [ir.Constant(word, 2)]))
        host = builder.inttoptr(host_address, word.as_pointer())
        builder.store(value, builder.gep(host, [ir.Constant(word, 1)]))
        builder.call(_intrinsic(builder.module, "llvm.nvvm.membar.sys"), [])  # the host reads the status first
        builder.store(status, host)


def _intrinsic(module: Any, name: str) -> Any:
    return cgutils.get_or_insert_function(module, ir.FunctionType(ir.VoidType(), []), name)


@contextmanager
def _explained(spec: KernelSpec) -> Iterator[None]:
    """Turn whatever numba-cuda raises into a CompileError."""
    try:
        yield
    except CompileError:
        raise
    except Exception as error:  # its errors are of many classes, and a bug of its is no less a refusal
        message = _message(error)
        refused = captured_container(spec.name, spec.function, message)
        raise refused or CompileError(spec.name, message, location=_location(error, spec)) from None


def _message(error: Exception) -> str:
    """numba-cuda's message, without the names of its passes."""
    text = str(error) if isinstance(error, NumbaError) else f"{type(error).__name__}: {error}"
    noise = ("Failed in nopython mode pipeline", "Failed in cuda mode pipeline", "During: Pass ")
    return "\n".join(line for line in text.splitlines() if not line.startswith(noise)).strip()


def _location(error: BaseException, spec: KernelSpec) -> str:
    """Where in the kernel the error is, when numba-cuda says so; else the kernel's first line."""
    filename = spec.function.__code__.co_filename
    location = getattr(error, "loc", None)
    if location is not None and location.filename == filename:
        return f"{absolute(filename)}:{location.line}"
    told = re.findall(rf'{re.escape(Path(filename).name)}", line (\d+)', str(error))
    return f"{absolute(filename)}:{told[-1]}" if told else _first_line(spec)


def _first_line(spec: KernelSpec) -> str:
    code = spec.function.__code__
    return f"{absolute(code.co_filename)}:{code.co_firstlineno}"

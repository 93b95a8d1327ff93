"""Kernels for the CPU: numba compiles a range entry, a file keeps its object code, a process loads it by its symbol.

Importing this module imports numba. That is for worker processes: what loads their files needs none of it
(:mod:`aiodev._backends.cpu.compile.kernel_code`). See :mod:`aiodev._backends.cpu.compile.entry_source` for the argument block
and the loops, :mod:`aiodev._backends.cpu.compile.errors` for what a failing entry leaves behind.
"""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba import types
from numba.core import compiler as numba_compiler, errors as numba_errors
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.target_extension import target_override

from aiodev._backends.compile import stored
from aiodev._backends.compile.refusals import captured_container, check_host_state, returned_value
from aiodev._backends.cpu.compile import casts, division, half, lang
from aiodev._backends.cpu.compile.entry_source import entry_source, span_source
from aiodev._backends.cpu.compile.function import jit_function
from aiodev._backends.cpu.compile.intrinsics import array_at, counted, one_by_one, scalar_at
from aiodev._backends.cpu.compile.kernel_object import KernelObject
from aiodev._backends.cpu.compile.object_file import emit
from aiodev._backends.cpu.compile.pipeline import EntryCompiler, entry_flags, linked_only
from aiodev._backends.cpu.compile.staging import staged_arguments, staging_module
from aiodev._backends.cpu.compile.tiles import Tile, tile_compiler, tile_of
from aiodev._core.backend.interface import KernelSpec
from aiodev._core.backend.kernel_arguments import KernelArgument
from aiodev._core.errors import CompileError
from aiodev._core.source_names import absolute

__all__ = ["compile_object", "compile_result", "numba_type"]

#: Options of a kernel that numba is told of; anything else a spec carries is a mistake.
OPTIONS = frozenset({"boundscheck", "fastmath"})

casts.install()
division.install()
half.install()
stored.install()
lang.install()


def compile_object(spec: KernelSpec) -> tuple[KernelObject, bool]:
    """The object file of a kernel, and whether other processes can use it: its code has no addresses of this one.

    Raises:
        CompileError: numba refused it.
    """
    with global_compiler_lock:
        result = compile_result(spec)
        return emit(result, _staging(spec)), not result.library.has_dynamic_globals


def _staging(spec: KernelSpec) -> Callable[[str, str], str] | None:
    """The wrapper that stages an entry's results; None where none can be staged."""
    arguments = spec.parse_arguments()
    if _tile(spec, arguments):  # what takes so long per index does not wait for its results
        return None
    staged = staged_arguments(spec.function, spec.ndim, arguments)
    if not staged.results:
        return None
    return functools.partial(staging_module, ndim=spec.ndim, arguments=arguments, staged=staged)


def compile_result(spec: KernelSpec) -> Any:
    """numba's result for the entry of ``spec``: ``library`` holds the code, ``fndesc`` its symbol's name."""
    unknown = [name for name, _ in spec.options if name not in OPTIONS]
    if unknown:
        raise CompileError(spec.name, f"no option is called {unknown[0]!r}", location=_first_line(spec))
    check_host_state(spec.name, spec.function)
    arguments = spec.parse_arguments()
    options = {"error_model": "aiodev", **dict(spec.options)}
    fastmath = options["fastmath"] = _fastmath(options.get("fastmath", False))
    with _explained(spec), global_compiler_lock, linked_only(), target_override("cpu"):
        body = jit_function(spec.function, forceinline=True, **options)
        word = types.int64
        # By itself first, so that what is wrong with the body is said of the body, not of the loop around it.
        kinds = (*[word] * spec.ndim, *map(numba_type, arguments))
        body.compile(kinds)
        returned = body.overloads[kinds].signature.return_type
        if returned is not types.none:
            raise returned_value(spec.name, spec.function, str(returned))
        entry = _entry_function(spec, body, arguments, options)
        typing, target = cpu_target.typing_context, cpu_target.target_context
        typing.refresh()
        target.refresh()
        flags = entry_flags(fastmath)
        return numba_compiler.compile_extra(
            typing, target, entry, (word, word, word), word, flags, {}, pipeline_class=EntryCompiler
        )


def _fastmath(option: bool | tuple[str, ...]) -> bool | set[str]:
    """The option as numba takes it."""
    return option if isinstance(option, bool) else set(option)


def _tile(spec: KernelSpec, arguments: list[KernelArgument]) -> Tile | None:
    """The tile of an entry; None where an index out of bounds is to be noticed, for what indices did before shows then."""
    return None if dict(spec.options).get("boundscheck") else tile_of(spec.function, spec.ndim, arguments)


def _entry_function(spec: KernelSpec, body: Any, arguments: list[KernelArgument], options: dict[str, Any]) -> Any:
    name = "".join(c if c.isalnum() else "_" for c in spec.name) + "_entry"
    filename = f"<aiodev {spec.name} {spec.key[:16]}>"
    namespace: dict[str, Any] = {
        "__name__": __name__,
        "array_at": array_at,
        "body": body,
        "counted": counted,
        "int64": types.int64,
        "one_by_one": one_by_one,
        "scalar_at": scalar_at,
    }
    namespace.update({f"T{position}": numba_type(argument) for position, argument in enumerate(arguments)})
    tile = _tile(spec, arguments)
    source = entry_source(name, spec.ndim, arguments, tile)
    if tile:
        source += span_source(spec.ndim, arguments)
    exec(compile(source, filename, "exec"), namespace)
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    if tile:
        namespace["span"] = jit_function(namespace["span"], **options)
        compiler = tile_compiler(tile, spec.ndim, arguments)
        namespace["tile"] = jit_function(spec.function, compiler, forceinline=True, **options)
    return namespace[name]


def numba_type(argument: KernelArgument) -> Any:
    """numba's type for an argument."""
    dtype = stored.number_type(argument.dtype)
    if not argument.is_array:
        return dtype
    return types.Array(dtype, argument.ndim, argument.layout, readonly=argument.readonly)


@contextmanager
def _explained(spec: KernelSpec) -> Iterator[None]:
    """Turn whatever numba raises into a CompileError."""
    try:
        yield
    except CompileError:
        raise
    except Exception as error:  # numba's own errors are of many classes, and a bug of its is no less a refusal
        message = _message(error)
        refused = captured_container(spec.name, spec.function, message)
        raise refused or CompileError(spec.name, message, location=_location(error, spec)) from None


def _message(error: Exception) -> str:
    """numba's message, without the names of its passes."""
    text = str(error) if isinstance(error, numba_errors.NumbaError) else f"{type(error).__name__}: {error}"
    noise = ("Failed in nopython mode pipeline", "During: Pass ")
    return "\n".join(line for line in text.splitlines() if not line.startswith(noise)).strip()


def _location(error: BaseException, spec: KernelSpec) -> str:
    """Where in the kernel the error is, when numba says so; else the kernel's first line."""
    code = spec.function.__code__
    location = getattr(error, "loc", None)
    if location is not None and location.filename == code.co_filename:
        return f"{absolute(location.filename)}:{location.line}"
    return _first_line(spec)


def _first_line(spec: KernelSpec) -> str:
    code = spec.function.__code__
    return f"{absolute(code.co_filename)}:{code.co_firstlineno}"

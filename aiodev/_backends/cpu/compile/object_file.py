"""Compiled kernels as object files of our own making: emitted with one public symbol, linked into this process by LLVM.

numba names a function by its module, its name, its types and a number that counts within a process. So two kernels of one name
that were compiled by two processes have the same symbols inside, and LLVM would join them: one kernel would call the
other's functions. Here everything in a kernel's module is made internal to it, except its entry, which gets a name that
nothing else has. To load what is left takes some ten times fewer calls of LLVM than numba's way, each of which takes a lock.

Code that makes Python objects, for the arguments of an exception, finds numba's *environment* of its function by a pointer,
which is filled in when the code is loaded.
"""

from __future__ import annotations

import ctypes
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from llvmlite import binding as llvm
from numba.core import config
from numba.core.environment import Environment, lookup_environment
from numba.core.registry import cpu_target

from aiodev._backends.cpu.compile.disk_cache import pack, unpack
from aiodev._backends.cpu.compile.vector_variants import inline_variants

__all__ = ["CompiledEntry", "emit", "link"]

#: Pointers through which functions that call themselves, or each other, are reached; numba fills them in when it loads.
_UNRESOLVED = ".numba.unresolved$"
#: Pointers to environments.
_ENVIRONMENT = "_ZN08NumbaEnv"

_lock = threading.Lock()
_environments: list[Any] = []


class CompiledEntry(NamedTuple):
    """The object file of a kernel's entry.

    Attributes:
        symbol: the entry's.
        environments: for each environment that the code needs, the symbol of its pointer, and its constants.
        code: the file's content.
    """

    symbol: str
    environments: tuple[tuple[str, list[Any]], ...]
    code: bytes

    def to_parts(self) -> list[bytes]:
        """What the disk cache keeps."""
        parts = [self.symbol.encode(), self.code]
        for symbol, constants in self.environments:
            parts += symbol.encode(), pack(constants)
        return parts

    @classmethod
    def from_parts(cls, parts: Sequence[bytes]) -> CompiledEntry:
        """The entry of what was kept.

        Raises:
            Exception: its constants were pickled by other versions than these.
        """
        symbol, code, *environments = parts
        pairs = zip(environments[::2], environments[1::2], strict=True)
        return cls(symbol.decode(), tuple((name.decode(), unpack(constants)) for name, constants in pairs), code)


def emit(result: Any, wrapper: Callable[[str, str], str] | None = None) -> CompiledEntry:
    """The entry that numba compiled, as an object file for this machine. The compiler must be this thread's alone.

    Args:
        wrapper: gives the LLVM assembly of an entry of the first name, which calls the one of the second name in its place.
    """
    module = result.library._final_module.clone()
    for variable in list(module.global_variables):
        if variable.name.startswith(_UNRESOLVED):
            _resolve(module, variable.name)
    unique = secrets.token_hex(16)
    symbol = f"aiodev_entry_{unique}"
    if wrapper is not None:
        module.link_in(llvm.parse_assembly(wrapper(symbol, result.fndesc.llvm_func_name)))
    for function in module.functions:
        if function.name == result.fndesc.llvm_func_name and wrapper is None:
            function.name = symbol
        elif not function.is_declaration and function.name != symbol:
            function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration and variable.linkage.name not in ("internal", "private"):
            variable.linkage = "internal"
    _finish(module)
    environments: list[tuple[str, list[Any]]] = []
    for variable in module.global_variables:
        if variable.name.startswith(_ENVIRONMENT):
            environment = lookup_environment(variable.name)
            variable.name = f"aiodev_environment_{len(environments)}_{unique}"
            variable.linkage = "external"
            environments.append((variable.name, [] if environment is None else list(environment.consts)))
    code = cpu_target.target_context.codegen()._tm.emit_object(module)
    return CompiledEntry(symbol, tuple(environments), code)


def _resolve(module: Any, pointer: str) -> None:
    """Define a pointer to a function of the module."""
    function = pointer.removeprefix(_UNRESOLVED)
    text = f'declare void @"{function}"()\n@"{pointer}" = global ptr @"{function}"\n'
    module.link_in(llvm.parse_assembly(text))


def _finish(module: Any) -> None:
    """Inline what had to wait, and leave out what has been inlined everywhere."""
    machine = cpu_target.target_context.codegen()._tm
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_module_pass_manager()
    inline_variants(module, passes)
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)


def link(entry: CompiledEntry) -> int:
    """Link an object file into this process; returns the entry's address, which stays valid for ever."""
    with _lock:
        _engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(entry.code))
        _engine.finalize_object()
        for symbol, constants in entry.environments:
            environment = Environment({})
            environment.consts.extend(constants)
            _environments.append(environment)
            pointer = ctypes.c_void_p.from_address(_engine.get_global_value_address(symbol))
            pointer.value = id(environment)
        address: int = _engine.get_function_address(entry.symbol)
    return address


def _make_engine() -> Any:
    """A linker like numba's own."""
    codegen = cpu_target.target_context.codegen()
    options: dict[str, Any] = {"opt": config.OPT}
    codegen._customize_tm_options(options)
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(**options)
    module = llvm.parse_assembly("")
    module.triple = llvm.get_process_triple()
    return llvm.create_mcjit_compiler(module, machine, use_lmm=config.USE_LLVMLITE_MEMORY_MANAGER)


def _nothing() -> CompiledEntry:
    """A function of no use."""
    module = llvm.parse_assembly("define void @aiodev_nothing() { ret void }")
    module.triple = llvm.get_process_triple()
    return CompiledEntry("aiodev_nothing", (), cpu_target.target_context.codegen()._tm.emit_object(module))


# Now, when the backend starts, and not when somebody waits for a kernel: what LLVM does once takes it two milliseconds, during
# which it keeps a core, perhaps the event loop's.
_engine = _make_engine()
link(_nothing())

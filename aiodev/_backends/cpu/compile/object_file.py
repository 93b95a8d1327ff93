"""Object files of compiled kernels: emitted with one public symbol, linked into this process by LLVM.

numba names a function by its module, its name, its types and a number that counts within a process. So two kernels of one name
that were compiled by two processes have the same symbols inside, and LLVM would join them: one kernel would call the
other's functions. Here everything in a kernel's module is made internal to it, except its entry, which gets a name that
nothing else has. To load what is left takes some ten times fewer calls of LLVM than numba's way, each of which takes a lock;
it needs no numba either (:mod:`aiodev._backends.cpu.compile.kernel_object`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from llvmlite import binding as llvm
from numba.core.environment import lookup_environment
from numba.core.registry import cpu_target

from aiodev._backends.cpu.compile.kernel_object import KernelObject
from aiodev._backends.cpu.compile.vector_variants import inline_variants

__all__ = ["emit"]

#: Pointers to environments.
_ENVIRONMENT = "_ZN08NumbaEnv"
#: numba's allocator, and what it calls to free an allocation that nobody refers to any more.
_ALLOCATOR, _FREE = "NRT_", "NRT_MemInfo_call_dtor"


def emit(result: Any, wrapper: Callable[[str, str], str] | None = None) -> KernelObject:
    """The entry that numba compiled, as an object file for this machine. The compiler must be this thread's alone.

    Args:
        wrapper: gives the LLVM assembly of an entry of the first name, which calls the one of the second name in its place.
    """
    module = result.library._final_module.clone()
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
    _free_nothing(module, unique)
    environments: list[tuple[str, list[Any]]] = []
    for variable in module.global_variables:
        if variable.name.startswith(_ENVIRONMENT):
            environment = lookup_environment(variable.name)
            variable.name = f"aiodev_environment_{len(environments)}_{unique}"
            variable.linkage = "external"
            environments.append((variable.name, [] if environment is None else list(environment.consts)))
    code = cpu_target.target_context.codegen()._tm.emit_object(module)
    return KernelObject(symbol, tuple(environments), code)


def _finish(module: Any) -> None:
    """Inline what had to wait, and leave out what has been inlined everywhere."""
    machine = cpu_target.target_context.codegen()._tm
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_module_pass_manager()
    inline_variants(module, passes)
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)


def _free_nothing(module: Any, unique: str) -> None:
    """Do without numba's allocator where nothing is allocated: what a launch gives is not the kernel's to free.

    numba counts references to arrays even so; what it would call at the last one is never reached. What takes its place has
    a name of its own: LLVM's linker would have other files that free something call it, though it is internal.
    """
    taken = [function.name for function in module.functions if function.is_declaration]
    if [name for name in taken if name.startswith(_ALLOCATOR)] == [_FREE]:
        body = "call void @llvm.trap() unreachable"
        module.link_in(llvm.parse_assembly(f"declare void @llvm.trap() define void @{_FREE}(ptr %0) {{ {body} }}"))
        free = module.get_function(_FREE)
        free.linkage, free.name = "internal", f"aiodev_free_{unique}"

"""Native functions as one object file for this machine's processor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llvmlite import binding as llvm

from aiodev._backends.executor.compile import Function
from aiodev._backends.executor.wrap import make_module

__all__ = ["emit", "make_machine"]

_SPEED = 2


def make_machine() -> Any:
    """LLVM's view of this machine, for code that is linked into this process."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    x86 = target.name.startswith("x86")
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=host_features(),
        opt=_SPEED,
        reloc="static" if x86 else "default",  # LLVM's linker for processes wants that there
        codemodel="jitdefault",
        jit=True,
    )


def host_features() -> str:
    """What the processor can do, as LLVM says it."""
    try:
        return str(llvm.get_host_cpu_features().flatten())
    except RuntimeError:  # LLVM cannot tell: then it goes by the processor's name
        return ""


def emit(name: str, functions: Iterable[Function]) -> bytes:
    """An object file of native functions, and of all that they call."""
    machine = make_machine()
    module = llvm.parse_assembly(make_module(name, functions))
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=_SPEED)
    options.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager()
    passes.run(module, builder)
    return bytes(machine.emit_object(module))

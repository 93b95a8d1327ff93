"""This machine as LLVM sees it: the target of code, and how it is linked into this process."""

from __future__ import annotations

import functools
from typing import Any

from aiodev._core.at_fork import Whole

__all__ = ["SPEED", "host_features", "host_target", "llvm", "make_machine", "using_llvm"]

#: LLVM's level of optimisation where machine code is generated.
SPEED = 2

#: Held by threads that call LLVM, whose interface has a lock of its own, which a forked child must not find locked.
using_llvm = Whole()


def llvm() -> Any:
    """LLVM's interface, which costs something to import and is not needed to count devices."""
    from llvmlite import binding

    return binding


def make_machine(processor: str | None = None, features: str | None = None) -> Any:
    """A target machine of LLVM for code that is linked into a process: this one, or of a machine with another processor."""
    binding = llvm()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_triple(binding.get_process_triple())
    x86 = target.name.startswith("x86")
    return target.create_target_machine(
        cpu=processor or binding.get_host_cpu_name(),
        features=host_features() if features is None else features,
        opt=SPEED,
        reloc="static" if x86 else "default",  # LLVM's linker for processes wants that there
        codemodel="jitdefault",
        jit=True,
    )


@functools.cache
def host_target() -> str:
    """All that decides what LLVM makes for this machine."""
    with using_llvm:
        binding = llvm()
        return f"{binding.get_process_triple()} {binding.get_host_cpu_name()} {host_features()}"


def host_features() -> str:
    """The processor's features, by LLVM's names."""
    try:
        return str(llvm().get_host_cpu_features().flatten())
    except RuntimeError:  # LLVM cannot tell: then it goes by the processor's name
        return ""

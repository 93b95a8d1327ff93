"""Emits native functions as one object file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llvmlite import binding as llvm

from aiodev._native.compile import Function
from aiodev._native.machine import SPEED, make_machine
from aiodev._native.wrap import make_module

__all__ = ["emit"]


def emit(name: str, functions: Iterable[Function], machine: Any = None) -> bytes:
    """An object file of native functions, and of all that they call; for this machine by default."""
    machine = machine or make_machine()
    module = llvm.parse_assembly(make_module(name, functions))
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=SPEED)
    options.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager()
    passes.run(module, builder)
    return bytes(machine.emit_object(module))

"""C callbacks that may come while an exception is on its way.

**Problem.** A consumer that fails drops what it was given while its exception is set, and that calls back. Python code must not
run then: the interpreter takes the exception for a failure of the callback, reports it, and the consumer's caller gets
``SystemError: error return without exception set`` in its place. What ctypes makes of a Python function runs it at once.

**Solution.** A few instructions around that, which put the exception aside and back. LLVM makes them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

__all__ = ["error_safe"]

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
#: Engines own code that may be called for ever.
_kept: list[Any] = []

_SOURCE = """
define void @callback(ptr %argument) {{
  %kind = alloca ptr
  %value = alloca ptr
  %traceback = alloca ptr
  %state = call i32 {PyGILState_Ensure}()
  call void {PyErr_Fetch}(ptr %kind, ptr %value, ptr %traceback)
  call void {function}(ptr %argument)
  %kind_ = load ptr, ptr %kind
  %value_ = load ptr, ptr %value
  %traceback_ = load ptr, ptr %traceback
  call void {PyErr_Restore}(ptr %kind_, ptr %value_, ptr %traceback_)
  call void {PyGILState_Release}(i32 %state)
  ret void
}}
"""
_CALLED = ("PyGILState_Ensure", "PyErr_Fetch", "PyErr_Restore", "PyGILState_Release")


def error_safe(function: Callable[[int], object]) -> int:
    """The address of a C function ``void f(void *)`` that calls ``function(address)``; any thread may call it, for ever."""
    from llvmlite import binding as llvm  # costly to import

    callback = _Callback(function)
    addresses = {name: getattr(ctypes.pythonapi, name) for name in _CALLED} | {"function": callback}
    text = _SOURCE.format_map({name: _constant(pointer) for name, pointer in addresses.items()})
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.triple = llvm.get_process_triple()
    machine = llvm.Target.from_triple(module.triple).create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _kept.append((engine, callback))
    address: int = engine.get_function_address("callback")
    return address


def _constant(pointer: Any) -> str:
    return f"inttoptr (i64 {ctypes.cast(pointer, ctypes.c_void_p).value} to ptr)"

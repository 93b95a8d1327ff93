"""C callbacks that may come while an exception is on its way, and after the interpreter's end.

**Problem.** A consumer that fails drops what it was given while its exception is set, and that calls back. Python code must not
run then: the interpreter takes the exception for a failure of the callback, reports it, and the consumer's caller gets
``SystemError: error return without exception set`` in its place. What ctypes makes of a Python function runs it at once.

A consumer may also outlive the interpreter, or drop its last reference when modules are already taken apart.

**Solution.** A few instructions around that, which put the exception aside and back, and do nothing from the program's end on.
LLVM makes them. The instructions themselves are never freed, so nobody has to be told at the end.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable
from typing import Any

__all__ = ["error_safe", "immortal"]

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_SOURCE = """
define void @callback(ptr %argument) {{
  %ended = load volatile i8, ptr {ended}
  %running = icmp eq i8 %ended, 0
  br i1 %running, label %call, label %leave
call:
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
  br label %leave
leave:
  ret void
}}
"""
_CALLED = ("PyGILState_Ensure", "PyErr_Fetch", "PyErr_Restore", "PyGILState_Release")


def immortal(obj: Any) -> Any:
    """Keep ``obj`` for ever: C code has a pointer into it, perhaps for longer than any module lives."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(obj))
    return obj


#: Whether the program has ended: then it is not 0.
_ended = immortal(ctypes.c_uint8(0))


@atexit.register
def _end() -> None:
    _ended.value = 1


def error_safe(function: Callable[[int], object]) -> int:
    """The address of a C function ``void f(void *)`` that calls ``function(address)``; any thread may call it, for ever.

    From the program's end on it does nothing.
    """
    from llvmlite import binding as llvm  # costly to import

    callback = _Callback(function)
    functions = {name: getattr(ctypes.pythonapi, name) for name in _CALLED} | {"function": callback}
    addresses = {name: ctypes.cast(pointer, ctypes.c_void_p).value for name, pointer in functions.items()}
    addresses["ended"] = ctypes.addressof(_ended)
    text = _SOURCE.format_map({name: f"inttoptr (i64 {address} to ptr)" for name, address in addresses.items()})
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.triple = llvm.get_process_triple()
    machine = llvm.Target.from_triple(module.triple).create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    immortal((engine, callback))  # which own code that may be called for ever
    address: int = engine.get_function_address("callback")
    return address

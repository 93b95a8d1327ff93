"""Native code in this process: linked, and called (see :mod:`aiodev._native.package`).

It is made in the thread that asks for it: nearly all of that is LLVM's, which works without the GIL. So there is no other
process to be started, to be told where to import from, and to be ended when the start is interrupted.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from aiodev._core.at_fork import Whole
from aiodev._core.sigint import sigint_held
from aiodev._native.machine import using_llvm
from aiodev._native.objects import OBJECTS, TABLE

__all__ = ["COMPILED", "NativeCode", "NativeCodeError", "at_work"]

#: Stands in a class's body for a method that is a compiled function, which each instance has itself: nothing is in front of it.
COMPILED: Any = None
_FASTCALL, _KEYWORDS = 0x80, 0x2  # METH_FASTCALL, METH_KEYWORDS


class NativeCodeError(RuntimeError):
    """Native code can be neither found nor made here."""


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


class NativeCode:
    """An object file that is linked into this process, for good.

    Args:
        code: what :func:`aiodev._native.emit.emit` gave.
        given: what the code has by ``given_object``.
    """

    def __init__(self, code: bytes, given: object = None) -> None:
        from llvmlite import binding as llvm

        from aiodev._native.machine import make_machine

        machine = make_machine()
        module = llvm.parse_assembly("")
        module.triple = machine.triple
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        table = (ctypes.c_int64 * (len(OBJECTS) + 1)).from_address(self._engine.get_global_value_address(TABLE))
        table[:] = [id(each) for each in (*OBJECTS, given)]
        self._given = given
        self._functions: dict[Any, tuple[Any, _Method]] = {}
        self._methods: dict[tuple[Any, str], _Method] = {}
        _kept.append(self)

    def function(self, function: Any) -> Callable[..., Any]:
        """An exported function, for Python: a plain C function that takes its arguments by position."""
        if function not in self._functions:
            name, text = function.py_func.__name__, function.py_func.__doc__ or ""
            method = _Method(name.encode(), self.address(function), _FASTCALL, text.encode())
            # Another thread may have made one meanwhile, and given it out: that stays.
            self._functions.setdefault(function, (_new_function(ctypes.byref(method), None, None), method))
        made: Callable[..., Any] = self._functions[function][0]
        return made

    def method(self, function: Any) -> Callable[[object], Callable[..., Any]]:
        """A function that Python calls with objects: from an object to the C function that has it, as a bound method has."""
        method = ctypes.byref(self._method_of(function, function.py_func.__name__, function.py_func.__doc__))

        def bind(own: object) -> Callable[..., Any]:
            made: Callable[..., Any] = _new_function(method, own, None)
            return made

        return bind

    def _method_of(self, function: Any, name: str, text: str | None) -> _Method:
        key = function, name
        if key not in self._methods:
            code, flags = self.address(function), _FASTCALL | _KEYWORDS
            self._methods.setdefault(key, _Method(name.encode(), code, flags, (text or "").encode()))
        return self._methods[key]

    def descriptor(self, function: Any, owner: type, name: str) -> Any:
        """The same as a method of a class, whose object is the instance: to be what that has by a name, in a function's place.

        It has that function's documentation and parameters, but for their annotations.
        """
        replaced = vars(owner)[name]
        return _new_descriptor(owner, ctypes.byref(self._method_of(function, name, _described(replaced, name))))

    def address(self, function: Any) -> int:
        """Where an entry, a callback, or what Python calls of an exported function, is. Asks LLVM, which may take long."""
        from aiodev._native.wrap import symbol

        with at_work(), using_llvm:
            address: int = self._engine.get_function_address(symbol(function))
        if not address:
            raise NativeCodeError(f"{symbol(function)} is not in the native code")
        return address


def _described(function: Any, name: str) -> str:
    """What CPython takes parameters and documentation of a method from."""
    signature = inspect.signature(function)
    parameters = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    plain = str(signature.replace(parameters=parameters, return_annotation=signature.empty))
    return f"{name}{plain.replace('(self', '($self', 1)}\n--\n\n{function.__doc__ or ''}"


@contextlib.contextmanager
def at_work() -> Iterator[None]:
    """Have LLVM work; a daemon thread comes no further once the program ends, when LLVM may take itself down.

    Raises:
        NativeCodeError: the interpreter ends, and has ended the thread that had LLVM at work.
    """
    if sys.is_finalizing() and _lock.held_elsewhere():
        raise NativeCodeError("the interpreter ends while native code is being made")
    with _lock:
        if not (_leaving and threading.current_thread().daemon):
            yield
            return
    threading.Event().wait()


def _leave_llvm_at_work() -> None:
    """At exit: nobody begins from now on; whoever has LLVM at work, for seconds maybe, is left there.

    LLVM's library takes itself down when the process ends, which a thread that compiles meanwhile does not survive, nor the
    process. So the process ends without that then. Where the system has no means for it, the thread is waited for.
    """
    global _leaving
    _leaving = True
    if not _llvm_is_at_work() or _end_without_destructors():
        return
    with sigint_held, _lock, using_llvm:
        pass


def _llvm_is_at_work() -> bool:
    if _lock.held_elsewhere() or using_llvm.held_elsewhere():
        return True
    numba = sys.modules.get("numba.core.compiler_lock")  # kernels are compiled in this process where they must
    lock = getattr(getattr(numba, "global_compiler_lock", None), "_lock", None)
    if lock is None or not lock.acquire(blocking=False):
        return lock is not None
    lock.release()
    return False


def _end_without_destructors() -> bool:
    """Have the process skip what libraries that are loaded by now do at its end; whether this system can.

    The C library calls these handlers last first, behind all that the interpreter does. So what C wrote is flushed, and the
    process ends with the status that it would have had.
    """
    try:
        system = ctypes.CDLL(None)
        on_exit, leave, flush, register = system.on_exit, system._exit, system.fflush, system.__cxa_atexit
    except (AttributeError, TypeError):  # `on_exit`, whose handlers are told the status, is glibc's
        return False
    return not on_exit(leave, None) and not register(flush, None, None)


for _ in range(2):  # Ctrl-C at the first instruction of the one leaves the other
    atexit.register(_leave_llvm_at_work)
_lock = Whole()
_leaving = False
_kept: list[NativeCode] = []  # its functions may be anywhere
_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.restype = ctypes.py_object
_new_function.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
_new_descriptor = ctypes.pythonapi.PyDescr_NewMethod
_new_descriptor.restype = ctypes.py_object
_new_descriptor.argtypes = [ctypes.py_object, ctypes.c_void_p]

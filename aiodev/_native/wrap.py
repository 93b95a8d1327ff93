"""Wrappers by which Python, workers and C call native functions.

Python calls plain C functions that take their arguments as an array (``METH_FASTCALL``), and so makes no tuple of them. What
they need of the interpreter's objects is in a table, which whoever loads the code fills in (``OBJECTS``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llvmlite import ir

from aiodev._native.compile import Function, Signature
from aiodev._native.objects import OBJECTS, TABLE
from aiodev._native.translate import WORD, Definition, Module, may_raise

__all__ = ["make_module", "symbol"]

_MEMORY_ERROR, _TYPE_ERROR, _BYTES, _NONE, _ = range(len(OBJECTS))
_HALF = ir.IntType(32)
_VOID = ir.VoidType()


def make_module(name: str, functions: Iterable[Function]) -> str:
    """LLVM's assembly of native functions, and of all that they call; each has its :func:`symbol`."""
    module = Module(name)
    table = ir.GlobalVariable(module.ir, ir.ArrayType(WORD, len(OBJECTS) + 1), TABLE)
    table.initializer = ir.Constant(table.value_type, None)
    for function in functions:
        _ROLES[function.role](module, function)
        module.ir.globals[symbol(function)].write()
    return str(module.ir)


def symbol(function: Function) -> str:
    """The name of what others call in place of a function."""
    return f"aiodev_{function.role}_{function.py_func.__name__}"


def _outer(module: Module, function: Function, result: ir.Type, parameters: list[ir.Type]) -> ir.IRBuilder:
    made = Definition(module.ir, ir.FunctionType(result, parameters), symbol(function))
    return ir.IRBuilder(made.append_basic_block("entry"))


def _wrap_entry(module: Module, function: Function) -> None:
    called = module.add(function)
    pointer = WORD.as_pointer()
    builder = _outer(module, function, _HALF, [pointer, pointer, *[WORD] * len(called.args)])
    place, _, *words = builder.function.args
    result, status = builder.call(called, words), ir.Constant(_HALF, 0)
    if may_raise(called):
        failed = builder.icmp_signed("!=", builder.extract_value(result, 1), ir.Constant(WORD, 0))
        result, status = builder.extract_value(result, 0), builder.zext(failed, _HALF)
    builder.store(result, place)
    builder.ret(status)


def _wrap_callback(module: Module, function: Function) -> None:
    called = module.add(function)
    builder = _outer(module, function, _VOID, [WORD] * len(called.args))
    builder.call(called, builder.function.args)
    builder.ret_void()


def _wrap_exported(module: Module, function: Function) -> None:
    """``PyObject *f(PyObject *self, PyObject *const *arguments, Py_ssize_t count)``; objects are words here."""
    signature = function.signature
    assert signature is not None
    called = module.add(function)
    name = function.py_func.__name__
    builder = _outer(module, function, WORD, [WORD, WORD.as_pointer(), WORD])
    _, arguments, count = builder.function.args
    expected = ir.Constant(WORD, len(signature.parameters))
    with builder.if_then(builder.icmp_signed("!=", count, expected), likely=False):
        _refuse(module, builder, _TYPE_ERROR, module.text(f"{name}() takes {len(signature.parameters)} arguments"))
    words = [
        _unwrap(module, builder, kind.name, builder.load(builder.gep(arguments, [ir.Constant(WORD, i)])), f"{name}()")
        for i, kind in enumerate(signature.parameters)
    ]
    saved = builder.call(module.external("PyEval_SaveThread", WORD, []), []) if function.nogil else None
    result = builder.call(called, words)
    if saved is not None:
        builder.call(module.external("PyEval_RestoreThread", _VOID, [WORD]), [saved])
    if may_raise(called):
        message = builder.extract_value(result, 1)
        with builder.if_then(builder.icmp_signed("!=", message, ir.Constant(WORD, 0)), likely=False):
            _refuse(module, builder, _MEMORY_ERROR, message)
        result = builder.extract_value(result, 0)
    builder.ret(_wrapped(module, builder, signature, result))


def _wrap_method(module: Module, function: Function) -> None:
    """``PyObject *f(PyObject *own, PyObject *const *arguments, Py_ssize_t count, PyObject *names)``; all objects are words."""
    called = module.add(function)
    builder = _outer(module, function, WORD, [WORD] * 4)
    builder.ret(builder.call(called, builder.function.args))


def _object(module: Module, builder: ir.IRBuilder, number: int) -> Any:
    """One of ``OBJECTS``."""
    table = module.ir.globals[TABLE]
    return builder.load(builder.gep(table, [ir.Constant(_HALF, 0), ir.Constant(_HALF, number)]))


def _refuse(module: Module, builder: ir.IRBuilder, error: int, message: Any) -> None:
    """Raise, and return."""
    if message.type != WORD:
        message = builder.ptrtoint(message, WORD)
    set_string = module.external("PyErr_SetString", _VOID, [WORD, WORD])
    builder.call(set_string, [_object(module, builder, error), message])
    builder.ret(ir.Constant(WORD, 0))


def _unwrap(module: Module, builder: ir.IRBuilder, kind: str, value: Any, caller: str) -> Any:
    """An argument as a word."""
    zero = ir.Constant(WORD, 0)
    if kind == "bytes":
        # The caller holds the object for the length of the call. Anything but bytes would be read out of bounds.
        result = builder.load(builder.inttoptr(builder.add(value, ir.Constant(WORD, 8)), WORD.as_pointer()))
        is_other = builder.icmp_unsigned("!=", result, _object(module, builder, _BYTES))
        with builder.if_then(is_other, likely=False):
            _refuse(module, builder, _TYPE_ERROR, module.text(f"{caller}: arguments must be bytes"))
        return value
    if kind == "boolean":
        result = builder.call(module.external("PyObject_IsTrue", _HALF, [WORD]), [value])
        with builder.if_then(builder.icmp_signed("<", result, ir.Constant(_HALF, 0)), likely=False):
            builder.ret(zero)
        return builder.sext(result, WORD)
    assert kind == "int64", kind
    result = builder.call(module.external("PyLong_AsLongLong", WORD, [WORD]), [value])
    with builder.if_then(builder.icmp_signed("==", result, ir.Constant(WORD, -1)), likely=False):
        error = builder.call(module.external("PyErr_Occurred", WORD, []), [])
        with builder.if_then(builder.icmp_signed("!=", error, zero), likely=False):
            builder.ret(zero)
    return result


def _wrapped(module: Module, builder: ir.IRBuilder, signature: Signature, word: Any) -> Any:
    """A result as a new reference."""
    kind = signature.result.name
    if kind == "void":
        return builder.call(module.external("Py_NewRef", WORD, [WORD]), [_object(module, builder, _NONE)])
    if kind == "boolean":
        return builder.call(module.external("PyBool_FromLong", WORD, [WORD]), [word])
    assert kind == "int64", kind
    return builder.call(module.external("PyLong_FromLongLong", WORD, [WORD]), [word])


_ROLES = {"entry": _wrap_entry, "callback": _wrap_callback, "exported": _wrap_exported,
          "method": _wrap_method}  # fmt: skip

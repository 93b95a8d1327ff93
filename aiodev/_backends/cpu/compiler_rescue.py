"""Elementary functions whose vector code is right for most arguments, and that must be right for all.

A loop becomes vector code if nothing in it branches. So the common case is computed without a branch, and its result goes
through a function that computes it anew where the argument is out of the range of the common case. LLVM is told of forms of
that function for 2 to 16 elements at a time (its ``vector-function-abi-variant``): they test all elements at once, and
hardly ever do more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from aiodev._backends.cpu.compiler_values import Value

__all__ = ["rescued"]

_WIDTHS = (2, 4, 8, 16)
_USED = "llvm.compiler.used"


def rescued(name: str, x: Value, found: Value, low: float, high: float, slowly: Callable[[Value], Value]) -> Value:
    """``found`` where ``low <= x <= high``, else ``slowly(x)``, which is hardly ever computed."""
    module = x.builder.module
    symbol = f"aiodev_{name}_{'f64' if x.is_double else 'f32'}"
    scalar = module.globals.get(symbol)
    if scalar is None:
        scalar = _scalar(module, symbol, x.ir.type, low, high, slowly)
        _keep(module, [_vector(module, scalar, x.ir.type, width, low, high) for width in _WIDTHS])
    call = x.builder.call(scalar, [x.ir, found.ir])
    variants = ",".join(f"_ZGV_LLVM_N{width}vv_{symbol}({symbol}_{width})" for width in _WIDTHS)
    # llvmlite knows no attributes that are strings; what it prints is what LLVM reads.
    set.add(call.attributes, f'"vector-function-abi-variant"="{variants}"')
    return Value(x.builder, call)


def _define(module: Any, symbol: str, kind: Any) -> Any:
    function = ir.Function(module, ir.FunctionType(kind, [kind, kind]), symbol)
    function.linkage = "linkonce_odr"
    for attribute in ("noinline", "nounwind", "readnone"):
        function.attributes.add(attribute)
    return function


def _scalar(module: Any, symbol: str, kind: Any, low: float, high: float, slowly: Callable[[Value], Value]) -> Any:
    function = _define(module, symbol, kind)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    x, found = function.args
    value = Value(builder, x)
    with builder.if_then(((value >= low) & (value <= high)).ir, likely=True):
        builder.ret(found)
    builder.ret(slowly(value).ir)
    return function


def _vector(module: Any, scalar: Any, kind: Any, width: int, low: float, high: float) -> Any:
    """The form for ``width`` elements: one test, and if any is beyond the limit, the function of each."""
    vector = ir.VectorType(kind, width)
    function = _define(module, f"{scalar.name}_{width}", vector)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    x, found = function.args
    bounds = [ir.Constant(vector, [ir.Constant(kind, bound)] * width) for bound in (low, high)]
    inside = builder.and_(builder.fcmp_ordered(">=", x, bounds[0]), builder.fcmp_ordered("<=", x, bounds[1]))
    every = builder.bitcast(inside, ir.IntType(width))
    with builder.if_then(builder.icmp_unsigned("==", every, ir.Constant(ir.IntType(width), -1)), likely=True):
        builder.ret(found)
    result = found
    for lane in range(width):
        place = ir.Constant(ir.IntType(32), lane)
        one = builder.call(scalar, [builder.extract_element(x, place), builder.extract_element(found, place)])
        result = builder.insert_element(result, one, place)
    builder.ret(result)
    return function


def _keep(module: Any, functions: list[Any]) -> None:
    """Have functions stay that nothing calls yet."""
    pointer = ir.IntType(8).as_pointer()
    known = module.globals.get(_USED)
    kept = [] if known is None else list(known.initializer.constant)
    kept += [function.bitcast(pointer) for function in functions]
    kind = ir.ArrayType(pointer, len(kept))
    if known is None:
        known = ir.GlobalVariable(module, kind, _USED)
        known.linkage, known.section = "appending", "llvm.metadata"
    known.value_type = kind
    known.type = kind.as_pointer()
    known.initializer = ir.Constant(kind, kept)

"""Vector variants: functions that have forms of their own for vectors.

**Problem.** LLVM turns a loop into vector code where it can do to vectors what the loop does to numbers. It does not find
instructions that have no counterpart for a number, such as a lookup in a table that lies in registers, nor a test of all
elements at once with a branch.

**Solution.** The loop calls a function of numbers, which says which functions of vectors do the same (LLVM's
``vector-function-abi-variant``); the vectorised loop calls these. They stay out of line until then, and are inlined
when the kernel is emitted (:func:`inline_variants`).

**Invariant.** All forms give the same result for the same number, so that a result does not depend on its place in an array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from aiodev._backends.cpu.compile.math.values import Value

__all__ = ["WIDTHS", "call_variants", "inline_variants"]

#: Elements of the vectors that functions have forms for.
WIDTHS = (2, 4, 8, 16)
_PREFIX = "aiodev_variant_"
_USED = "llvm.compiler.used"

#: Emits a form: the builder, the arguments, and the function of numbers.
Emit = Callable[[Any, Sequence[Any], Any], Any]


def call_variants(name: str, values: Sequence[Value], scalar: Emit, vector: Emit) -> Value:
    """Call the function ``name`` of numbers of one type, which is defined where that has not been done yet."""
    builder, kind = values[0].builder, values[0].ir.type
    module, symbol = builder.module, f"{_PREFIX}{name}_{'f64' if values[0].is_double else 'f32'}"
    function = module.globals.get(symbol)
    if function is None:
        function = _define(module, symbol, kind, len(values))
        function.attributes.add("noinline")  # where it is called, the form for vectors has to find the call
        _fill(function, function, scalar)
        forms = []
        for width in WIDTHS:
            form = _define(module, f"{symbol}_{width}", ir.VectorType(kind, width), len(values))
            _fill(form, function, vector)
            forms.append(form)
        _keep(module, forms)
    call = builder.call(function, [value.ir for value in values])
    places = "v" * len(values)
    variants = ",".join(f"_ZGV_LLVM_N{width}{places}_{symbol}({symbol}_{width})" for width in WIDTHS)
    # llvmlite knows no attributes that are strings; what it prints is what LLVM reads.
    set.add(call.attributes, f'"vector-function-abi-variant"="{variants}"')
    return Value(builder, call)


def inline_variants(module: Any, passes: Any) -> None:
    """Have the passes put the forms that the loops of an optimised module call into these loops."""
    forms = [function for function in module.functions if function.name.startswith(_PREFIX)]
    for function in forms:
        if function.name.endswith(tuple(f"_{width}" for width in WIDTHS)):
            function.add_function_attribute("alwaysinline")
    if forms:
        passes.add_always_inliner_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()


def _define(module: Any, symbol: str, kind: Any, count: int) -> Any:
    function = ir.Function(module, ir.FunctionType(kind, [kind] * count), symbol)
    function.linkage = "linkonce_odr"
    for attribute in ("nounwind", "readnone"):
        function.attributes.add(attribute)
    return function


def _fill(function: Any, scalar: Any, emit: Emit) -> None:
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    builder.ret(emit(builder, function.args, scalar))


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

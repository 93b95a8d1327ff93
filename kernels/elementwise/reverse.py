"""Gradients of fused functions: the function's steps backwards, as one kernel for each operand.

The function is traced, as it is for its own kernel; then the rule of each step, which is elementwise, is traced behind it. What
is between is computed again, so that nothing but the operands is kept. A gradient is a function of arrays as well, and has
gradients itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from aiodev.kernels.elementwise.tracing import Step, Traced, Untraceable

__all__ = ["gradient_of"]


def gradient_of(function: Callable[..., Any], place: int) -> Callable[..., Any]:
    """The gradient of the operand at a place: a function of the result's gradient and the operands, that is to be traced.

    What it returns is 0 where the result does not depend on the operand.
    """

    def gradient(g: Any, *operands: Any) -> Any:
        tape = g.tape
        begin = len(tape.steps)
        result = function(*operands)
        totals: dict[str, Any] = {result.code: g} if isinstance(result, Traced) else {}
        for step in reversed(tape.steps[begin:]):
            total = totals.pop(step.result.code, None)
            if total is not None:
                _pass_on(step, total, totals)
        return totals.get(operands[place].code, 0.0)

    return gradient


def _pass_on(step: Step, total: Any, totals: dict[str, Any]) -> None:
    """Add what the gradient of a step's result contributes to those of its operands."""
    made, values, result = step
    if made is None:
        rules: dict[str, Any] = {"x": lambda g: g}
        named = {"x": values[0]}
    else:
        rules, named = made.function.operation.gradients, dict(zip(made.operands, values, strict=True))  # type: ignore[attr-defined]
    wanted = {name: value for name, value in named.items() if isinstance(value, Traced) and _has_gradient(value)}
    if wanted and not rules:
        raise Untraceable(f"{made and made.name} has no gradient")
    for name, value in wanted.items():
        rule = rules[name]
        if rule is None:
            continue
        known = {**named, "g": total, "result": result}
        own = rule(*[known[parameter] for parameter in inspect.signature(rule).parameters])
        if own is None:
            continue
        own = own.astype(value.dtype)
        before = totals.get(value.code)
        totals[value.code] = own if before is None else before + own


def _has_gradient(value: Traced) -> bool:
    """Whether gradients reach it: real numbers of arrays."""
    if isinstance(value.kind, type):
        return False
    if value.dtype.kind == "c":
        raise Untraceable("gradients of complex numbers")
    return value.dtype.kind == "f" or value.dtype.kind not in "biu"

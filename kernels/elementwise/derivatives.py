"""Gradients of elementwise functions: a row of the table says them as expressions, and gradients of gradients follow.

An expression names the gradient of the result ``{g}``, operands, and the ``{result}``. It becomes an elementwise function of
what it names: one kernel, and one pass over memory, for each operand that has a gradient. The gradients of that function are
expressions again, found by the rules of differentiation, with what the table's rows say of the functions that are called. So
gradients can be differentiated as often as one likes.

Constants are written ``np.float32(2)`` where that is exact: so what is computed with them in single precision stays there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["called_by", "declare_call", "derivative_of", "names_in", "renamed"]

#: Of an operand's name in an expression that is parsed.
_MARK = "_operand_{}_"
_MARKED = re.compile(r"_operand_(\w+?)_(?!\w)")


class _Known(NamedTuple):
    """A function that expressions call."""

    operands: tuple[str, ...]
    derivatives: Mapping[str, str | None]


_calls: dict[str, _Known] = {}
#: What converts numbers, and tests them: the derivative is that of nothing that varies, or of the operand.
_CASTS = {"np.float32", "np.float64"}
_ONE = ast.parse("np.float32(1)", mode="eval").body


def names_in(expression: str) -> tuple[str, ...]:
    """The names in an expression's braces, each once, in order."""
    return tuple(dict.fromkeys(re.findall(r"\{(\w+)\}", expression)))


def renamed(expression: str, names: Mapping[str, str]) -> str:
    """An expression of other operands."""
    return expression.format(**{name: f"{{{names[name]}}}" for name in names_in(expression)})


def called_by(expression: str, operands: Sequence[str]) -> str | None:
    """The function that an expression does nothing but call, with its operands in order."""
    match = re.fullmatch(r"([\w.]+)\((.*)\)", expression)
    return match[1] if match and match[2] == ", ".join(f"{{{name}}}" for name in operands) else None


def declare_call(name: str, operands: Sequence[str], derivatives: Mapping[str, str | None]) -> None:
    """Say how a function is differentiated that other expressions call."""
    _calls.setdefault(name, _Known(tuple(operands), derivatives))


def derivative_of(expression: str, operand: str) -> str | None:
    """The derivative of an expression with respect to an operand; None for 0.

    Raises:
        NotImplementedError: it calls a function that no row declares a derivative of.
    """
    derived = _derived(_parsed(expression), _MARK.format(operand))
    return None if derived is None else _unparsed(derived)


def _parsed(expression: str) -> ast.expr:
    return ast.parse(expression.format(**{name: _MARK.format(name) for name in names_in(expression)}), mode="eval").body


def _unparsed(tree: ast.expr) -> str:
    return _MARKED.sub(r"{\1}", ast.unparse(tree))


def _derived(tree: ast.expr, name: str) -> ast.expr | None:
    """The derivative with respect to a name; None for 0."""
    match tree:
        case ast.Constant() | ast.Compare() | ast.BoolOp() | ast.Attribute():
            return None
        case ast.Name(id=own):
            return _ONE if own == name else None
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            derived = _derived(inner, name)
            return None if derived is None else ast.UnaryOp(ast.USub(), derived)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            return _sum(_derived(left, name), op, _derived(right, name))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _sum(_product(_derived(left, name), right), ast.Add(), _product(_derived(right, name), left))
        case ast.IfExp(test=test, body=body, orelse=other):
            first, second = _derived(body, name), _derived(other, name)
            if first is None and second is None:
                return None
            return ast.IfExp(test, first or _zero(body), second or _zero(other))
        case ast.Call(func=function, args=arguments):
            return _derived_call(tree, ast.unparse(function), arguments, name)
    raise NotImplementedError(f"no rule for the derivative of {ast.unparse(tree)}")


def _derived_call(tree: ast.expr, function: str, arguments: Sequence[ast.expr], name: str) -> ast.expr | None:
    inner = [_derived(argument, name) for argument in arguments]
    if all(one is None for one in inner):
        return None
    if function in _CASTS:
        return inner[0]
    known = _calls.get(function)
    if known is None:
        raise NotImplementedError(f"no derivative is declared of {function}")
    values = {_MARK.format(own): argument for own, argument in zip(known.operands, arguments, strict=True)}
    total: ast.expr | None = None
    for own, derived in zip(known.operands, inner, strict=True):
        expression = known.derivatives[own]
        if derived is None or expression is None:
            continue
        put = _Put({**values, _MARK.format("result"): tree, _MARK.format("g"): derived})
        total = _sum(total, ast.Add(), put.visit(_parsed(expression)))
    return total


class _Put(ast.NodeTransformer):
    """Puts expressions in the place of names."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._values.get(node.id, node)


def _sum(left: ast.expr | None, op: ast.operator, right: ast.expr | None) -> ast.expr | None:
    if right is None:
        return left
    if left is None:
        return right if isinstance(op, ast.Add) else ast.UnaryOp(ast.USub(), right)
    return ast.BinOp(left, op, right)


def _product(derived: ast.expr | None, factor: ast.expr) -> ast.expr | None:
    if derived is None:
        return None
    return factor if derived is _ONE else ast.BinOp(derived, ast.Mult(), factor)


def _zero(like: ast.expr) -> ast.expr:
    """0 of the type of an expression."""
    return ast.parse("np.float32(0)", mode="eval").body

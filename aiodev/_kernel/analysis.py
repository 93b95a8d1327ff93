"""What a body does with its parameters, read from its source.

Two questions are asked of it. Which arrays does it write (a read-only one is refused there)? And what does it combine a
scalar with (a weak scalar takes the type of that)? Where there is no source, as at a plain prompt, nothing is known and
nothing is refused here; the compiler still refuses a write to a read-only array.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

__all__ = ["BodyUse", "analyse"]


@dataclass(slots=True)
class BodyUse:
    """How a body uses its parameters, by name.

    Attributes:
        written: parameters that are written to.
        partners: for each scalar-like parameter, the arrays whose elements appear in the same statement.
        integral: parameters that are used where only an integer will do, or in a way that is not understood.
    """

    written: set[str] = field(default_factory=set)
    partners: dict[str, set[str]] = field(default_factory=dict)
    integral: set[str] = field(default_factory=set)
    known: bool = True


def analyse(function: Callable[..., None], parameters: tuple[str, ...]) -> BodyUse:
    """How ``function`` uses ``parameters``."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return BodyUse(integral=set(parameters), known=False)
    use = BodyUse()
    names = frozenset(parameters)
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            use.written |= _roots(node.value) & names
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
            use.written |= _roots(node.target.value) & names
        elif isinstance(node, ast.Call) and _called(node).startswith("atomic_") and node.args:
            use.written |= _roots(node.args[0]) & names
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Return):
            _note_partners(statement, names, use)
    _note_integral(tree, names, use)
    return use


def _roots(node: ast.expr) -> set[str]:
    """The name that a chain of subscripts and attributes starts from."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _elements(node: ast.AST) -> set[str]:
    """Names whose elements are read in ``node``, not counting what is only used as an index."""
    if isinstance(node, ast.Subscript):
        return _roots(node.value)
    return {name for child in ast.iter_child_nodes(node) for name in _elements(child)}


def _note_partners(statement: ast.stmt, names: frozenset[str], use: BodyUse) -> None:
    value = getattr(statement, "value", None)
    if value is None:
        return
    arrays = _elements(value)
    if isinstance(statement, ast.AugAssign):
        arrays |= _elements(statement.target)
    for node in _outside_indices(value):
        if isinstance(node, ast.Name) and node.id in names and node.id not in arrays:
            use.partners.setdefault(node.id, set()).update(arrays)


def _outside_indices(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, ast.Subscript):
        for child in ast.iter_child_nodes(node):
            yield from _outside_indices(child)


def _note_integral(tree: ast.AST, names: frozenset[str], use: BodyUse) -> None:
    """A parameter is left an integer unless each use of it is in a sum or product with elements of arrays."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Name) and node.id in names):
            continue
        if isinstance(node.ctx, ast.Store) or not _meets_elements(node, parents):
            use.integral.add(node.id)


def _meets_elements(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    parent = parents.get(node)
    while isinstance(parent, ast.UnaryOp):
        node, parent = parent, parents.get(parent)
    if not (isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add | ast.Sub | ast.Mult)):
        return False
    return bool(_elements(parent.right if parent.left is node else parent.left))

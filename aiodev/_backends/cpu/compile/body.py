"""What a kernel's body does, by numba's IR of it: where it may read and write elements of arrays, what its variables are.

The IR is that of the frontend, without types: a *view* is whatever may be one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numba.core import ir

__all__ = ["Uses", "argument_names", "global_value", "is_fact", "only_value"]


def argument_names(code: Any) -> dict[int, str]:
    """The names of a function's arguments, by position."""
    assignments = (one for block in code.blocks.values() for one in block.find_insts(ir.Assign))
    return {one.value.index: one.target.name for one in assignments if isinstance(one.value, ir.Arg)}


class Uses:
    """Where a body may read and write elements of arrays: wherever it uses a variable that may be one, or a view.

    Args:
        arrays: the arrays among the arguments, and of how many dimensions they are.
    """

    def __init__(self, code: Any, arrays: Mapping[str, int]) -> None:
        assignments = [one for block in code.blocks.values() for one in block.find_insts(ir.Assign)]
        constant = [one for one in assignments if isinstance(one.value, ir.Global | ir.FreeVar)]
        known = {one.target.name: one.value.value.ndim for one in constant if isinstance(one.value.value, np.ndarray)}
        self._code, self._arrays = code, {**arrays, **known}
        self._maybe: set[str] = set(self._arrays)  # arrays or views
        count = 0
        while count != len(self._maybe):
            count = len(self._maybe)
            self._maybe |= {one.target.name for one in assignments if self._may_be_view(one.value)}

    def reads_behind_writes_of(self, array: str) -> bool:
        """Whether the body may read something once it has written an element of ``array``."""
        blocks = self._code.blocks
        pending: list[int] = []
        for block in blocks.values():
            writes = [
                place for place, one in enumerate(block.body) if isinstance(one, ir.SetItem) and one.target.name == array
            ]
            if writes:
                if any(map(self._reads, block.body[writes[0] + 1 :])):
                    return True
                pending += block.terminator.get_targets()
        seen: set[int] = set()
        while pending:
            label = pending.pop()
            if label in seen:
                continue
            seen.add(label)
            if any(map(self._reads, blocks[label].body)):
                return True
            pending += blocks[label].terminator.get_targets()
        return False

    def may_write(self, array: str) -> bool:
        """Whether the body may write elements of ``array``: by an assignment, through a view, or in what it calls."""
        for block in self._code.blocks.values():
            for statement in block.body:
                if isinstance(statement, ir.SetItem):
                    if statement.target.name == array or statement.target.name not in self._arrays:
                        return True
                elif isinstance(statement, ir.Assign):
                    value = statement.value
                    if isinstance(value, ir.Expr) and value.op == "call" and self.is_used(*value.list_vars()):
                        return True
                    if isinstance(value, ir.Expr) and value.op == "inplace_binop" and self.is_used(value.lhs):
                        return True
        return False

    def _reads(self, statement: Any) -> bool:
        if isinstance(statement, ir.Del) or statement.is_terminator:
            return False
        if isinstance(statement, ir.SetItem):
            return self.is_used(statement.index, statement.value)
        if isinstance(statement, ir.Assign):
            value = statement.value
            return isinstance(value, ir.Expr) and not is_fact(value) and self.is_used(*value.list_vars())
        return self.is_used(*statement.list_vars())

    def is_used(self, *variables: Any) -> bool:
        """Whether one of these may be an array or a view."""
        return any(variable.name in self._maybe for variable in variables)

    def _may_be_view(self, value: Any) -> bool:
        if isinstance(value, ir.Var):
            return value.name in self._maybe
        if not isinstance(value, ir.Expr) or is_fact(value) or self._is_element(value):
            return False
        return self.is_used(*value.list_vars())

    def _is_element(self, value: Any) -> bool:
        """Whether it is an element of an argument, by as many integers as that has dimensions."""
        if not (isinstance(value, ir.Expr) and value.op == "getitem" and value.value.name in self._arrays):
            return False
        if only_value(self._code, value.value) is None:  # the name is used for something else, too
            return False
        index = only_value(self._code, value.index)
        items = index.items if isinstance(index, ir.Expr) and index.op == "build_tuple" else [value.index]
        return len(items) == self._arrays[value.value.name] and all(self._is_integer(item, set()) for item in items)

    def _is_integer(self, variable: Any, seen: set[str]) -> bool:
        """Whether whatever is assigned to a variable is an integer, if it is a number; of a loop, it is itself again."""
        if variable.name in seen:
            return True
        seen.add(variable.name)
        return all(self._gives_integer(value, seen) for value in self._code._definitions.get(variable.name, [None]))

    def _gives_integer(self, value: Any, seen: set[str]) -> bool:
        if isinstance(value, ir.Arg):
            return value.name not in self._arrays
        if isinstance(value, ir.Const):
            return isinstance(value.value, int)
        if isinstance(value, ir.Var):
            return self._is_integer(value, seen)
        if isinstance(value, ir.Expr) and value.op in ("binop", "inplace_binop", "unary", "pair_first", "iternext", "getiter"):
            return all(self._is_integer(one, seen) for one in value.list_vars())
        if isinstance(value, ir.Expr) and value.op == "getitem":
            return is_fact(only_value(self._code, value.value))
        return isinstance(value, ir.Expr) and value.op == "call" and global_value(self._code, value.func) is range


def is_fact(value: Any) -> bool:
    """Whether it is what an array is like, and none of its elements."""
    return isinstance(value, ir.Expr) and value.op == "getattr" and value.attr in ("shape", "size", "ndim", "strides")


def global_value(code: Any, variable: Any) -> Any:
    """The global that a variable always is; None for anything else."""
    value = only_value(code, variable)
    return value.value if isinstance(value, ir.Global) else None


def only_value(code: Any, variable: Any) -> Any:
    """The value that a variable always has, or None where that depends on the way."""
    try:
        return code.get_definition(variable)
    except KeyError:
        return None

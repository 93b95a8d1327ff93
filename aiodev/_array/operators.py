"""Python's operators on arrays, which refuse by name: each says which function of :mod:`aiodev.kernels` does it.

Left to Python, ``x == 3`` would compare identities and be False, ``3 in x`` too, and ``x * numpy.float64(2)`` would be NumPy's
to compute: it would wait for the device, on the loop, and give a NumPy array. So all of them are here, made from one table.

**Identity.** Sets and dictionaries look arrays up by their hash, which is that of the object, and ask ``==`` only of objects
whose hashes are equal; those of two living arrays are not. Weak ones do ask it of an array and itself, where others compare
identities first. So that, and nothing else, is True.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["Operators"]

#: Functions of :mod:`aiodev.kernels` by the operators of two operands, and the names of their special methods.
_COMPARISONS = {
    "eq": ("==", "equal"),
    "ne": ("!=", "not_equal"),
    "lt": ("<", "less"),
    "le": ("<=", "less_equal"),
    "gt": (">", "greater"),
    "ge": (">=", "greater_equal"),
}
#: They have reflected and in-place forms.
_ARITHMETIC = {
    "add": ("+", "add"),
    "sub": ("-", "subtract"),
    "mul": ("*", "multiply"),
    "matmul": ("@", "matmul"),
    "truediv": ("/", "divide"),
    "floordiv": ("//", "floor_divide"),
    "mod": ("%", "remainder"),
    "pow": ("**", "pow"),
    "lshift": ("<<", "bitwise_left_shift"),
    "rshift": (">>", "bitwise_right_shift"),
    "and": ("&", "bitwise_and"),
    "or": ("|", "bitwise_or"),
    "xor": ("^", "bitwise_xor"),
}
#: How the operators and functions of one operand are written, and what computes them; and others that are made of several.
_OTHERS = {
    "neg": ("-x", "aiodev.kernels.negative(x)"),
    "pos": ("+x", "aiodev.kernels.positive(x)"),
    "invert": ("~x", "aiodev.kernels.bitwise_invert(x)"),
    "abs": ("abs(x)", "aiodev.kernels.abs(x)"),
    "round": ("round(x)", "aiodev.kernels.round(x)"),
    "trunc": ("math.trunc(x)", "aiodev.kernels.trunc(x)"),
    "floor": ("math.floor(x)", "aiodev.kernels.floor(x)"),
    "ceil": ("math.ceil(x)", "aiodev.kernels.ceil(x)"),
    "divmod": ("divmod(x, y)", "aiodev.kernels.floor_divide(x, y) with remainder(x, y)"),
    "rdivmod": ("divmod(y, x)", "aiodev.kernels.floor_divide(y, x) with remainder(y, x)"),
    "imatmul": ("x @= y", "x.copy_from(aiodev.kernels.matmul(x, y))"),
    "contains": ("y in x", "aiodev.kernels.any(aiodev.kernels.equal(x, y))"),
}
#: What asks for a value here and now, which is on the device.
_VALUES = {"bool": "bool(x)", "int": "int(x)", "float": "float(x)", "complex": "complex(x)", "index": "operator.index(x)"}


class Operators:
    """The operators of an array, and what NumPy asks for before it computes with one."""

    __slots__ = ()

    # NumPy's operators then leave `numpy.ones(3) * x` to the array, and its ufuncs refuse it.
    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        """What NumPy's functions do with an array: tell its shape, which is known. The rest would wait for the device.

        Raises:
            TypeError: the function looks at elements.
        """
        shown = _SHOWN.get(function)
        if shown is not None:
            return shown(*args, **kwargs)
        name = f"{function.__module__}.{function.__name__}"
        raise TypeError(
            f"{name} would wait for the array's device; aiodev.kernels has functions that do not, by the array API's names, "
            f"and {name}(await x.numpy()) computes on the host"
        )


def _at_least_1d(*arrays: Any) -> Any:
    found = tuple(map(_extended, arrays))
    return found[0] if len(found) == 1 else found


def _extended(x: Any) -> Any:
    if not isinstance(x, Operators):
        return np.atleast_1d(x)
    array: Any = x
    return array if array.ndim else array[None]


#: Functions of NumPy that look at no element. Libraries call them before they convert: matplotlib, for one.
_SHOWN: dict[Callable[..., Any], Callable[..., Any]] = {
    np.atleast_1d: _at_least_1d,
    np.iscomplexobj: lambda x: x.dtype.kind == "c",
    np.isrealobj: lambda x: x.dtype.kind != "c",
    np.ndim: lambda a: a.ndim,
    np.shape: lambda a: a.shape,
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
}


def _refusals() -> Iterator[tuple[str, str]]:
    """Names of special methods, and what they raise."""
    found = dict(_OTHERS)
    for name, (sign, function) in _COMPARISONS.items():
        found[name] = f"x {sign} y", f"aiodev.kernels.{function}(x, y)"
    for name, (sign, function) in _ARITHMETIC.items():
        found[name] = f"x {sign} y", f"aiodev.kernels.{function}(x, y)"
        found[f"r{name}"] = f"y {sign} x", f"aiodev.kernels.{function}(y, x)"
        found.setdefault(f"i{name}", (f"x {sign}= y", f"aiodev.kernels.{function}(x, y, out=x)"))
    for name, (written, call) in found.items():
        yield name, f"arrays have no operators: for `{written}`, {call}; `await x.numpy()` gives the values"
    for name, written in _VALUES.items():
        yield name, f"`{written}`: what the array holds is on its device; `await x.numpy()` brings it here"


def _refuse(name: str, message: str) -> None:
    def refuse(*operands: object) -> bool:
        if is_equality and operands[0] is operands[1]:
            return True
        raise TypeError(message)

    is_equality = name == "eq"
    refuse.__name__ = refuse.__qualname__ = f"__{name}__"
    setattr(Operators, refuse.__name__, refuse)


for _name, _message in _refusals():
    _refuse(_name, _message)

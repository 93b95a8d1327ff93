"""Callees of a kernel's function: the names that it looks up, and the modules whose functions are compiled with it."""

from __future__ import annotations

import types

__all__ = ["is_known", "names_of"]

#: Packages whose functions numba, or numba-cuda, knows by identity, through overloads.
KNOWN_PACKAGES = frozenset(
    {"aiodev", "builtins", "cmath", "cuda", "llvmlite", "math", "numba", "numba_cuda", "numpy", "operator", "scipy"}
)


def is_known(module: str) -> bool:
    """Whether numba knows a module's functions by identity. The standard kernels are written as any user's are."""
    return module.partition(".")[0] in KNOWN_PACKAGES and not f"{module}.".startswith("aiodev.kernels.")


def names_of(code: types.CodeType) -> set[str]:
    """Every name that code, or code nested in it, looks up."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_of(constant)
    return names

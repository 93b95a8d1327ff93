"""The functions behind operators and indexing: those of :mod:`aiodev.kernels`.

They stand above arrays, so nothing here imports them: each is looked up when it is first needed, which imports the library if
nobody has (0.1 s, once a process; ``docs/concepts/waiting.rst`` tells users to do so before).
"""

from __future__ import annotations

from typing import Any

from aiodev._core.sigint import import_whole

__all__ = ["gradients", "indexing", "kernels", "namespace"]


class _Functions:
    """A module's functions as attributes, each found once."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        function = getattr(import_whole(self._module), name)
        setattr(self, name, function)
        return function


kernels = _Functions("aiodev.kernels")
indexing = _Functions("aiodev.kernels.indexing.advanced")
gradients = _Functions("aiodev.kernels.indexing.gradients")


def namespace() -> Any:
    """The module of the array API standard, which has these functions and those that block."""
    return import_whole("aiodev.array_api")

"""Packages of native functions: what their code is made from, by what it is found, and how it comes into this process."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable
from typing import Any

from aiodev._core.compilations import reported
from aiodev._core.sources import NUMBA, compiled_by
from aiodev._native import code_cache
from aiodev._native.native_code import NativeCode, NativeCodeError, at_work
from aiodev._native.preload import load_llvm

__all__ = ["NativePackage", "ahead", "packages"]

_log = logging.getLogger("aiodev")
#: All that there are in this process, those of backends that were imported.
packages: list[NativePackage] = []
#: Functions that give a package's code if it was compiled ahead; they may block.
ahead: list[Callable[[NativePackage], bytes | None]] = []


class NativePackage:
    """A package of native functions, its ``__all__``.

    Args:
        name: of the package.
        sources: files and folders that its code comes from, beside this one, as :func:`~aiodev._core.sources.compiled_by`
            takes them.
        layout: says where objects have what the code reads of them.
        given: what the code has by ``given_object``.
    """

    def __init__(self, name: str, *sources: str, layout: Callable[[], str] = str, given: object = None) -> None:
        self.name = name
        self._sources, self._layout, self._given = sources, layout, given
        self._code: NativeCode | None = None
        packages.append(self)

    def key(self, distributions: tuple[str, ...] = NUMBA) -> str:
        """Hash of what the code is compiled from, and by: distributions whose versions count. Reads files."""
        return f"{compiled_by('_native', *self._sources, distributions=distributions)[:32]} {self._layout()}"

    def load(self) -> NativeCode:
        """The code: linked once a process. Blocks, at the very first time for about a second.

        Raises:
            NativeCodeError: it can be neither found nor made.
        """
        with at_work():
            if self._code is None:
                try:
                    self._code = self._load()
                except ImportError:
                    raise
                except Exception as error:
                    raise NativeCodeError(f"{self.name}: {type(error).__name__}: {error}") from error
            return self._code

    def prepare(self) -> None:
        """Begin to load, in a thread; who asks for it meanwhile waits. What goes wrong is for who asks."""

        def run() -> None:
            try:
                self.load()
            except Exception as error:
                _log.debug("loading native code: %r", error)

        threading.Thread(target=run, name="aiodev-native-code").start()

    def emit(self, machine: Any = None) -> bytes:
        """Make the code, an object file; for this machine by default."""
        from aiodev._native.emit import emit  # what writes LLVM's assembly is not needed to load code

        native = importlib.import_module(self.name)
        return emit(self.name, [getattr(native, name) for name in native.__all__], machine)

    def _load(self) -> NativeCode:
        load_llvm()
        from aiodev._native.machine import host_target

        name = self.name.removeprefix("aiodev.").removeprefix("_backends.").removeprefix("_").replace(".", "-")
        return NativeCode(code_cache.stored(name, f"{self.name} {self.key()} {host_target()}", self._make), self._given)

    def _make(self) -> bytes:
        code = next(filter(None, (find(self) for find in ahead)), None)
        if code is not None:
            return code
        with reported(self.name):
            return self.emit()

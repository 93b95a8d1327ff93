"""Loading kernels for the CPU, from the disk cache to an address, in a process that does not compile.

:mod:`aiodev._backends.cpu.compile.compiler` makes what is kept here, in worker processes. It is imported, and numba with it,
where a kernel has to be compiled in this one. Everything here blocks; a thread of the compile service calls it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from aiodev._backends.compile import disk_cache as disk
from aiodev._backends.cpu.compile import prebuilt
from aiodev._backends.cpu.compile.interpreted import interpreted_entry
from aiodev._backends.cpu.compile.kernel_object import KernelObject, link
from aiodev._core.at_fork import Whole
from aiodev._core.backend.interface import KernelSpec
from aiodev._core.errors import CompileError
from aiodev._core.sources import compiled_by
from aiodev._native.code_cache import folder_lock
from aiodev._native.machine import host_target
from aiodev._native.preload import quiet_import

__all__ = ["Code", "cached_kernel", "compile_kernel", "is_interpreted", "is_provisional", "load_kernel", "target"]

#: A kernel's code: an address, or a Python function where numba may not compile.
Code = int | Callable[[bytes, int, int], None]

#: What a kernel's code comes from in this backend; the kernel's key has the rest.
SOURCES = ("_backends/compile", "_backends/cpu", "_backends/executor", "_native")

# Code that was loaded lives as long as the process: a queue may hold its address at any time.
_loaded: dict[str, int] = {}
_provisional: set[str] = set()  #: keys of those that were compiled ahead
_lock = Whole()
_compiling = Whole()


def target() -> str:
    """The processor that code is made for, and the compiler; part of the name of every file in the disk cache."""
    return f"{host_target()} {compiled_by(*SOURCES)}"


def is_interpreted() -> bool:
    """Whether numba may not compile."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def kernel_path(spec: KernelSpec, directory: str) -> Path | None:
    """Where a kernel's object file is kept; None for one that is not."""
    return disk.path_of(directory, spec.name, spec.key, target()) if spec.key and directory else None


def compile_kernel(spec: KernelSpec, directory: str) -> None:
    """Compile ``spec`` into the disk cache, unless it is there, or another process puts it there meanwhile.

    Raises:
        CompileError: numba refused it.
    """
    path = kernel_path(spec, directory)
    if is_interpreted() or disk.read(path) is not None:
        return
    if path is None:
        _compile(spec, path)
        return
    with folder_lock(path.parent):
        if disk.read(path) is None:
            _compile(spec, path)


def load_kernel(spec: KernelSpec, directory: str) -> Code:
    """The entry's code, from the disk cache, else compiled.

    Raises:
        CompileError: numba refused it.
    """
    code = cached_kernel(spec, directory)
    return _link(spec, _compile(spec, kernel_path(spec, directory))) if code is None else code


def cached_kernel(spec: KernelSpec, directory: str) -> Code | None:
    """The entry's code if nothing has to be compiled for it: it is in this process or in the disk cache, or interpreted."""
    if is_interpreted():
        return interpreted_entry(spec.name, spec.function, spec.ndim, spec.parse_arguments())
    with _lock:
        known = _loaded.get(spec.key) if spec.key else None
    if known is not None:
        return known
    entry = _read(kernel_path(spec, directory))
    if entry is None and spec.key:
        entry = prebuilt.find_kernel(spec.key)
        if entry is not None:
            _provisional.add(spec.key)
    return None if entry is None else _link(spec, entry)


def is_provisional(spec: KernelSpec) -> bool:
    """Whether the code that was found for a kernel is good, but was not made for this very processor."""
    return spec.key in _provisional


def _read(path: Path | None) -> KernelObject | None:
    parts = disk.read(path)
    if parts is None:
        return None
    try:
        return KernelObject.from_parts(parts)
    except Exception:  # of whatever class in the pickle is not what it was
        return None


def _link(spec: KernelSpec, entry: KernelObject) -> int:
    try:
        address = link(entry)
    except ImportError as error:
        raise CompileError(spec.name, str(error)) from None
    if not spec.key:
        return address
    with _lock:
        return _loaded.setdefault(spec.key, address)


def _compile(spec: KernelSpec, path: Path | None) -> KernelObject:
    """Compile, and keep it at ``path``."""
    with _compiling:
        with quiet_import():
            from aiodev._backends.cpu.compile import compiler

        entry, is_lasting = compiler.compile_object(spec)
    if is_lasting:
        disk.write(path, entry.to_parts())
    return entry


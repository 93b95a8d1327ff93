"""What Dask pickles: arrays among the arguments of tasks, and kernels and fused functions that workers cannot import.

An array is pickled as ever, by its contents. But ``submit`` and ``map`` pickle what they are given at once, where an
asynchronous client's loop runs. What is not computed soon, and may wait for that very loop, is refused there.

A kernel is pickled by reference, as functions are. Where cloudpickle, which Dask sends functions with, pickles a function by
value instead, since it is of a script, a notebook, or a module that was registered, it does so with a kernel: as its bodies
and options. The lines of the bodies go along, since a kernel's analysis reads them (:mod:`aiodev._kernel.analysis.source`), and
a message of an error may show one; the file need not be where the worker is. A kernel that was sent before is the same one
again, so that each task finds its code loaded.
"""

from __future__ import annotations

import copyreg
import inspect
import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import cloudpickle

from aiodev import Array, Kernel, SyncError
from aiodev._core.bounded_table import enter
from aiodev.dask.arrays import block_until_written
from aiodev.dask.tokens import rename
from aiodev.dask.tuning import KERNELS_KEPT
from aiodev.kernels import Fused

__all__: list[str] = []

#: Lines of files, by the file's name and the line's number.
Lines = dict[str, dict[int, str]]


#: Kernels that were received, by what they are called on the way.
_received: dict[str, Kernel | Fused] = {}
#: What kernels are called on the way.
_names: WeakKeyDictionary[Kernel | Fused, str] = WeakKeyDictionary()


def _reduce_array(x: Array) -> Any:
    try:
        block_until_written(x)
    except SyncError:
        rename(x)  # while this error is held, Dask takes a task of the same key for one that it has submitted
        raise
    return x.__reduce__()


def _reduce(kernel: Kernel) -> Any:
    if _is_importable(kernel.py_func.__module__):
        return kernel.__reduce__()
    arguments, bodies, launch_options = kernel._parts()
    name = _names.setdefault(kernel, uuid4().hex)
    functions = [kernel.py_func, *bodies.values()]
    return _make, (name, arguments, bodies, launch_options, _lines_of(functions), _files_of(functions))


def _reduce_fused(fused: Fused) -> Any:
    if _is_importable(fused.py_func.__module__):
        return fused.__reduce__()
    return _make_fused, (_names.setdefault(fused, uuid4().hex), fused.py_func, fused._dtype, _files_of([fused.py_func]))


def _is_importable(module: str) -> bool:
    """Whether a worker is expected to have a module, as cloudpickle decides it."""
    registered = cloudpickle.list_registry_pickle_by_value()
    by_value = module == "__main__" or any(module == own or module.startswith(f"{own}.") for own in registered)
    return module in sys.modules and not by_value


def _lines_of(functions: list[Callable[..., None]]) -> Lines:
    files: Lines = {}
    for function in functions:
        try:
            lines, first = inspect.getsourcelines(function)
        except (OSError, TypeError):  # a prompt keeps none
            continue
        files.setdefault(function.__code__.co_filename, {}).update(enumerate(lines, max(1, first)))
    return files


def _files_of(functions: Sequence[Callable[..., Any]]) -> list[str]:
    """The files of functions, which newer versions of cloudpickle leave out."""
    return [function.__code__.co_filename for function in functions]


def _name_files(functions: Sequence[Callable[..., Any]], files: Sequence[str]) -> None:
    """Have functions that were received be those of files again: by these lines are found, and errors told."""
    for function, file in zip(functions, files, strict=True):
        function.__code__ = function.__code__.replace(co_filename=file)


def _make(
    name: str,
    arguments: tuple[Any, ...],
    bodies: Mapping[str, Callable[..., None]],
    launch_options: Mapping[str, Any],
    sources: Lines,
    files: Sequence[str],
) -> Kernel:
    known = _received.get(name)
    if isinstance(known, Kernel):
        return known
    for file, lines in sources.items():
        _enter(file, lines)
    _name_files([arguments[0], *bodies.values()], files)
    kernel = Kernel(*arguments)
    kernel._bodies.update(bodies)
    kernel._launch_options.update(launch_options)
    _names[kernel] = name
    enter(_received, name, kernel, KERNELS_KEPT)
    return kernel


def _make_fused(name: str, function: Callable[..., Any], dtype: Any, files: Sequence[str]) -> Fused:
    known = _received.get(name)
    if isinstance(known, Fused):
        return known
    _name_files([function], files)
    fused = Fused(function, dtype)
    _names[fused] = name
    enter(_received, name, fused, KERNELS_KEPT)
    return fused


def _enter(file: str, lines: Mapping[int, str]) -> None:
    """Have the interpreter know lines of a file that is not here."""
    known = linecache.getlines(file)
    if all(number <= len(known) and known[number - 1] == line for number, line in lines.items()):
        return
    text = known + ["\n"] * (max(lines) - len(known))
    for number, line in lines.items():
        text[number - 1] = line
    linecache.cache[file] = (sum(map(len, text)), None, text, file)


copyreg.pickle(Array, _reduce_array)
cloudpickle.CloudPickler.dispatch_table[Kernel] = _reduce
cloudpickle.CloudPickler.dispatch_table[Fused] = _reduce_fused

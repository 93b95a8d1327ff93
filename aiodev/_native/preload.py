"""Preloading: numba is imported in a thread without stopping the event loop.

Two things stop every thread for tens of milliseconds while numba is imported, and both can be avoided:

-   ``dlopen`` of LLVM (a hundred megabytes to relocate: 20–70 ms), which ``ctypes.CDLL`` calls with the GIL held. Called as a
    foreign function it is called without; the import then finds the library loaded.
-   Garbage collections. numba's import makes some 170,000 objects that the collector knows and that live for ever, and walking
    them takes 65–200 ms. So the collector rests meanwhile, and what is new then goes to the oldest generation without being
    walked: ``gc.freeze`` takes everything there is out of the collector's sight, and ``gc.unfreeze`` gives it back as old.

What remains is the walk of a full collection, which the interpreter makes once the objects that have lived for a while are a
quarter more than at the last one. A program that cannot have that calls ``gc.freeze`` itself when it has started: nothing that
is alive then is ever collected as cyclic garbage, so that is for the program to say. Where it has already, nothing is given
back here, as that would be the program's, too.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiodev._native.machine import using_llvm

_RTLD_NOW = 2


@contextmanager
def quiet_import() -> Iterator[None]:
    """Load LLVM without the GIL, and keep the collector quiet inside the block."""
    load_llvm()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count() == 0:
            gc.freeze()
            gc.unfreeze()
        if enabled:
            gc.enable()


def load_llvm() -> None:
    """Load LLVM's library without the GIL; where it cannot be found here, the import finds it in its own way."""
    spec = importlib.util.find_spec("llvmlite")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        library = Path(location) / "binding" / "libllvmlite.so"
        if library.exists():
            dlopen = ctypes.CDLL(None).dlopen
            dlopen.argtypes, dlopen.restype = [ctypes.c_char_p, ctypes.c_int], ctypes.c_void_p
            with using_llvm:
                dlopen(str(library).encode(), _RTLD_NOW)

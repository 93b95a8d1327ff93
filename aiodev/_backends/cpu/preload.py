"""Importing numba from a thread without stopping the event loop.

Two things stop every thread for tens of milliseconds while numba is imported, and both can be avoided:

-   ``dlopen`` of LLVM (a hundred megabytes to relocate: 20–70 ms), which ``ctypes.CDLL`` calls with the GIL held. Called as a
    foreign function it is called without; the import then finds the library loaded.
-   Full garbage collections. numba's import makes some 400,000 objects that live for ever, and walking them takes
    25–60 ms, during the import and once more afterwards. So the collector rests meanwhile, and what there is at the end is
    moved out of its sight (``gc.freeze``). The price: cyclic garbage of the program's own that exists at that
    moment, once, is not collected.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
        gc.freeze()
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
            dlopen(str(library).encode(), _RTLD_NOW)

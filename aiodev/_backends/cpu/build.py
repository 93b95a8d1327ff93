"""Compile the native executor into the disk cache: ``python -m aiodev._backends.cpu.build``.

Compiling holds the GIL for tenths of a second at a time, so at the very first start it is done in a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from aiodev._backends.cpu import codecache


def ensure_cached() -> None:
    """Fill the cache from another process, unless it is full. Blocks for some seconds, without the GIL.

    Where no process can be started, nothing is done: then the import of the native code compiles it, in this process.
    """
    if not codecache.native_is_cached():
        run_elsewhere("aiodev._backends.cpu.build")


def run_elsewhere(module: str) -> None:
    """Call ``main`` of a module in a process that finds what this one does, and wait; nothing where none can be started."""
    if not sys.executable:
        return
    command = [sys.executable, "-c", f"import {module} as build; build.main()"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with contextlib.suppress(OSError):
        subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL, env=environment)


def main() -> None:
    """Compile everything, here."""
    from aiodev._backends.cpu import native

    assert native.work.signatures
    codecache.mark_native_cached()


if __name__ == "__main__":
    main()

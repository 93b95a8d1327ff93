"""Compile the native executor into the disk cache: ``python -m aiodev._backends.cpu.build``.

Compiling holds the GIL for tenths of a second at a time, so at the very first start it is done in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys

from aiodev._backends.cpu import codecache


def ensure_cached() -> None:
    """Fill the cache from another process, unless it is full. Blocks for some seconds, without the GIL.

    Where no process can be started, nothing is done: then the import of the native code compiles it, in this process.
    """
    if codecache.native_is_cached() or not sys.executable:
        return
    command = [sys.executable, "-c", "from aiodev._backends.cpu import build; build.main()"]
    try:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL, env=environment)
    except OSError:
        return


def main() -> None:
    """Compile everything, here."""
    from aiodev._backends.cpu import native

    assert native.work.signatures
    codecache.mark_native_cached()


if __name__ == "__main__":
    main()

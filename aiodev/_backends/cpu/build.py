"""Compile the native executor into the disk cache: ``python -m aiodev._backends.cpu.build``.

Compiling holds the GIL for tenths of a second at a time, so at the very first start it is done in a process of its own.
"""

from __future__ import annotations

import logging

from aiodev._backends.cpu import codecache
from aiodev._core.cachedir import cache
from aiodev._core.child import command

logger = logging.getLogger("aiodev")

#: So many characters of what a process said that failed are told: the last ones, where a traceback has its error.
_TOLD = 2000


def ensure_cached() -> None:
    """Fill the cache from another process, unless it is full. Blocks for some seconds, without the GIL.

    Where no process can be started, nothing is done: then the import of the native code compiles it, in this process.
    """
    if not codecache.native_is_cached():
        run_elsewhere("aiodev._backends.cpu.build")


def run_elsewhere(module: str) -> None:
    """Call ``main`` of a module in a process that finds what this one does, and wait; a failure is logged.

    Nothing is done where nothing can be kept: what the process makes would be lost.
    """
    import subprocess  # costly to import, and not needed once the cache is full

    directory = cache.directory()
    if not (directory and cache.writable):
        return
    code = f"from aiodev._core.cachedir import cache; cache.adopt(sys.argv[1]); import {module} as build; build.main()"
    try:
        done = subprocess.run(
            command(code, directory), check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        logger.warning("no process can be started that compiles (%s): this one does it", error)
        return
    said = done.stdout.decode(errors="replace").strip()[-_TOLD:]
    if done.returncode:
        logger.warning("the process that compiles failed (exit status %d): this one does it. %s", done.returncode, said)
    elif said:
        logger.debug("the process that compiles said: %s", said)


def main() -> None:
    """Compile everything, here."""
    from aiodev._backends.cpu import native

    assert native.work.signatures
    codecache.mark_native_cached()


if __name__ == "__main__":
    main()

"""Child processes: Python interpreters that find the modules that this one finds, and no others.

``python -c`` and ``-m`` begin with the current directory, where any file may be called ``numba.py`` or ``random.py``. So a
child takes over ``sys.path`` as it is here before it imports anything. It gets the interpreter's flags as well: ``-I`` and
``-E`` mean that the environment is not to be listened to, and ``-X`` and ``-W`` were given for all of a program.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["command"]

#: Where this package is, wherever the path led when it was imported.
_PACKAGES = str(Path(__file__).parents[2])
#: Only what is built in is imported before the path is the parent's.
_TAKE_OVER = "import sys; n = 2 + int(sys.argv[1]); sys.path[:] = sys.argv[2:n]; del sys.argv[1:n], n; "


def command(code: str, *arguments: str) -> list[str]:
    """The command line that runs ``code``, one line, in a new process, with ``arguments`` behind ``sys.argv[0]``.

    Raises:
        OSError: this process, in which Python is embedded, does not know an interpreter.
    """
    from subprocess import _args_from_interpreter_flags  # type: ignore[attr-defined]  # costly to import

    if not sys.executable:
        raise FileNotFoundError("no Python interpreter is known (sys.executable is empty)")
    path = _path()
    return [sys.executable, *_args_from_interpreter_flags(), "-c", _TAKE_OVER + code, str(len(path)), *path, *arguments]


def _path() -> list[str]:
    """Where modules are imported from here; the current directory, if it is among that and still there, by its name."""
    try:
        here = os.getcwd()
    except OSError:
        here = ""
    paths = [place for entry in sys.path if isinstance(entry, str) and (place := entry or here)]
    return paths if _PACKAGES in paths else [*paths, _PACKAGES]

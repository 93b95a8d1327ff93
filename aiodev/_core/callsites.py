"""Call sites as integers, cheap enough to take at every launch.

A site is ``index << 32 | instruction``: an index in a table of code objects, and the byte offset of the calling
instruction. Only when an error is shown is it turned into a file and a line. Code objects are few and live as long as their
modules, so the table keeps them.

An error names the line of the program that called a library, not the library's own submission. Whether code belongs to a
library is looked up when it is first seen, so that a program's own launches pay nothing for it.
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import itertools
import linecache
import re
import sys
import threading
from collections.abc import Iterable
from inspect import CO_COROUTINE
from types import CodeType, FrameType

from aiodev._core import arguments
from aiodev._core.at_fork import first_in_child

__all__ = ["called", "describe_site", "enter_library", "enter_node", "forget_nodes", "here", "is_library", "node_of",
           "outside", "program_frame", "recent_sites", "register_library", "show", "site_of", "sites", "standing"]  # fmt: skip

#: File names of IPython's cells. Notebooks name a file that does not exist; IPython knows the cell.
_CELL = re.compile(r"<ipython-input-(\d+)-\w+>\Z")
_NOTEBOOK = re.compile(r".*[/\\]ipykernel_\d+[/\\][^/\\]+\Z")

#: Libraries of event loops, and of those the modules that call a task's next step.
_LOOP_LIBRARIES = frozenset({"asyncio", "trio", "anyio", "uvloop"})
_LOOPS = frozenset({"asyncio.events", "asyncio.base_events", "asyncio.runners", "trio._core._run"})
#: Methods that a program calls by the name of the class.
_BLOCK = frozenset({"__init__", "__enter__", "__exit__", "__aenter__", "__aexit__"})

#: Codes whose sites native code has at hand: a power of 2.
RECENT_SITES = 64
_codes: list[CodeType] = []
#: By a code object's id the site of its first byte; 0 for a library's.
sites: dict[int, int] = {}
#: That of an id, or None. At hand, as the table is, for code that does what ``here`` does without the cost of calling it.
site_of = sites.get
#: The same for native code, of codes that were looked up lately: pairs of words, each in the place that its id says.
recent_sites = (ctypes.c_int64 * (2 * RECENT_SITES))()
_libraries: set[str] = {"aiodev._core"}  # `Stream.launch` and its like
#: Of an operation of a graph, where it was captured, as a site or as text of another process, and its number.
_nodes: dict[int, tuple[int | str, int]] = {}
_serials = itertools.count(1)
_lock = threading.RLock()  # re-entrant: a finalizer, or a signal's handler, may submit while this thread holds it


def _renew_after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it


first_in_child(_renew_after_fork)


def register_library(package: str) -> None:
    """Have errors of what ``package`` submits name the place that called it, not the place inside that submitted.

    ``package`` is the name of a package or a module, such as ``__name__`` in ``__init__.py``; its submodules are meant, too.
    To be called when the library is imported.

    Raises:
        TypeError: it is no string.

    Example:
        >>> import aiodev
        >>> aiodev.register_library("my_kernels")
    """
    _libraries.add(arguments.instance("register_library", "package", package, str, "a module's name"))


def enter_library(code: CodeType) -> None:
    """Take this code for a library's: what it submits is its callers' doing."""
    _enter(code, True)


def here(depth: int = 1) -> int:
    """The site of the caller ``depth`` frames up, or of the first frame above it that is no library's."""
    frame = sys._getframe(depth + 1)
    first = site_of(id(frame.f_code))
    return first + frame.f_lasti if first else outside(frame)


class _Standing(threading.local):
    """What stands for the sites of whatever a library submits, for a part of a thread's program that never waits.

    Attributes:
        site: a site; 0 where the stack is looked at.
    """

    site = 0


standing = _Standing()


def outside(frame: FrameType | None) -> int:
    """The site that stands for libraries' own; else that of the first frame from ``frame`` on that is no library's, or 0."""
    site = standing.site
    if site:
        return site
    caller = program_frame(frame)
    if caller is None:
        return 0
    return sites[id(caller.f_code)] + caller.f_lasti


def program_frame(frame: FrameType | None) -> FrameType | None:
    """The first frame from ``frame`` on that is no library's."""
    while frame is not None:
        code = frame.f_code
        first = site_of(id(code))
        if first is None:
            first = _enter(code, is_library(frame.f_globals.get("__name__", "")))
        if first:
            return frame
        frame = frame.f_back
    return None


def _enter(code: CodeType, is_library: bool) -> int:
    with _lock:
        _codes.append(code)  # a library's, too: its id must stay its own
        index = 0 if is_library else len(_codes)
        while index and _codes[index - 1] is not code:  # such a one has come after it
            index -= 1
        first = sites[id(code)] = index << 32
        recent_sites[:] = [0] * len(recent_sites)  # one of them may be this code's; with the GIL, which `memset` lets go of
    return first


def is_library(module: str) -> bool:
    """Whether the code of a module is a library's."""
    while module:
        if module in _libraries:
            return True
        module = module.rpartition(".")[0]
    return False


def called(frame: FrameType | None) -> tuple[str | None, str | None]:
    """What the program called of a library, whose frame this is, and where, as ``file:line``; None for what is not known.

    The frames of an event loop's library between the two are nobody's calls. Where the loop itself called, as it does for
    ``asyncio.gather(done)``, no line of the program is above.
    """
    call: str | None = None
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        root = name.partition(".")[0]
        if name in _LOOPS:
            break
        if root == "aiodev":
            call = _public_name(frame, call)
        elif is_library(name):
            call = frame.f_code.co_qualname
        elif root not in _LOOP_LIBRARIES:
            return call, f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return call, None


def _public_name(frame: FrameType, inner: str | None) -> str | None:
    """What a program calls the function of a frame of ours; ``inner``: what that has called, if it has no such name."""
    code = frame.f_code
    name = code.co_qualname
    if "self" not in frame.f_locals or "<locals>" in name:
        return name
    public = next((kind for kind in type(frame.f_locals["self"]).__mro__ if _is_public(kind)), None)
    if public is None:  # of what a function has made, which is awaited
        return "await" if code.co_flags & CO_COROUTINE else inner
    return public.__name__ if code.co_name in _BLOCK else f"{public.__name__}.{code.co_name}"


def _is_public(kind: type) -> bool:
    """Whether a program has a class of ours by its name; where it is defined says so only once somebody has used that."""
    module = kind.__module__
    if not module.startswith("aiodev"):
        return False
    return kind.__name__ in sys.modules["aiodev"].__all__ or (module.count(".") == 1 and "._" not in module)


def enter_node(site: int | str, number: int) -> int:
    """A site for an operation of a graph that was captured at ``site``, or ``file:line``; until it is forgotten."""
    with _lock:
        own = -next(_serials)
        _nodes[own] = site, number
    return own


def forget_nodes(sites: Iterable[int]) -> None:
    """Forget sites that ``enter_node`` gave."""
    for site in sites:
        _nodes.pop(site, None)


def node_of(site: int) -> int | None:
    """Which operation of a graph a site is of; None where it is of none."""
    return _nodes[site][1] if site in _nodes else None


def describe_site(site: int) -> str | None:
    """``file:line`` of a site, which is where a launch was submitted, or None for 0, no site.

    For backends, whose executors are given sites as integers.

    Raises:
        ValueError: no launch was given it.

    Example:
        >>> aiodev.describe_site(0) is None
        True
    """
    site = arguments.integer("describe_site", "site", site)
    while site < 0:  # of a graph's operation; 0 where the graph is gone
        place = _nodes.get(site, (0, 0))[0]
        if isinstance(place, str):
            return place or None
        site = place
    if site == 0:
        return None
    index, instruction = site >> 32, site & 0xFFFFFFFF
    if not 0 < index <= len(_codes):
        raise _no_site(site)
    code, (starts, lines) = _codes[index - 1], _lines_of(index)
    place = bisect.bisect_right(starts, instruction) - 1
    if place == len(lines):  # behind the end
        raise _no_site(site)
    return f"{code.co_filename}:{lines[place] or code.co_firstlineno}"


def _no_site(site: int) -> ValueError:
    return ValueError(f"describe_site: site {site}: expected what a launch was given, or 0")


@functools.lru_cache(256)
def _lines_of(index: int) -> tuple[list[int], list[int | None]]:
    """Of a code object in the table: where the instructions of each line begin, and behind them the end; and which lines.

    A graph is shown with the places of thousands of operations, which are in few functions.
    """
    code = _codes[index - 1]
    spans = list(code.co_lines()) or [(0, len(code.co_code), None)]
    return [*(start for start, _, _ in spans), spans[-1][1]], [line for _, _, line in spans]


def show(place: str) -> str:
    """A place as ``describe`` gives it, for people: of a notebook's cell its number, and the line of the source itself."""
    file, _, line = place.rpartition(":")
    cell = _cell(file)
    if cell is None:
        return place
    source = linecache.getline(file, int(line)).strip()
    return f"{cell}, line {line}" + (f": `{source}`" if source else "")


def _cell(file: str) -> str | None:
    cell = _CELL.match(file)
    if cell is not None:
        return f"In[{cell[1]}]"
    if _NOTEBOOK.match(file) is None:
        return None
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(file)
    return "a cell" if name is None else str(name[1])  # as in ("Cell", "In[3]")

"""Which directory compiled code is kept in: the one that the settings name, if nobody else can put code there.

**Problem.** What lies in the cache is loaded and run. Whoever can write there, or put another directory in its place, runs code
as this user. And a program must also start where nothing can be written.

**Invariants.**

1.  A directory is used only if it is one, belongs to the effective user or to root, and can be written by nobody else; the same
    holds for all directories that lead to it, but that others may write to those with the sticky bit, where they cannot
    rename what is not theirs. Links on the way belong to the effective user or to root. What is made here is for its owner
    alone.
2.  Otherwise a private temporary directory takes its place, which the process that made it removes when it exits, and
    keeps locked until then: one that is not locked is of a process that was killed, and whoever makes one removes it. Threads
    and workers that are still compiling then make neither that one again nor another. Where a directory holds all of (1) but
    cannot be written to, the private one has links to the files that lie there: they are found.
3.  Where that cannot be made or written to either, a directory that holds all of (1) is only read from; without one the answer
    is "". Code is compiled in memory then, by each process for itself.
4.  A process warns once, and says what the matter is. A process that this one starts is told the answer, and says nothing.
5.  The answer holds while the directory is the one that was looked at, and the process is of the same user. A cleaner of
    temporary files may take the directory away, and then anybody may make another; so all ask again each time, and keep no
    path. A forked child makes a private directory of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import stat
import threading
from pathlib import Path
from typing import NamedTuple

from aiodev._core.config import settings

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

__all__ = ["UNFINISHED", "Cache", "cache", "distrusted", "make_folder", "write_whole"]

logger = logging.getLogger("aiodev")

#: What the names of files begin with that are being written.
UNFINISHED = ".making-"
#: A directory is usable if a file of so many bytes fits.
_PROBE = 4096
_ROOT = 0
#: What the names of private directories begin with, and of nothing else.
_PRIVATE = "aiodev-until-exit-"


class Cache:
    """The decision, made when it is first asked for.

    Args:
        wanted: the directory that is used if it may be.

    Attributes:
        writable: the directory that was last returned could be written to.
        incomplete: something could not be kept.
    """

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        self._lock = threading.Lock()
        self._directory = ""
        self._identity: tuple[int, ...] | None = None
        self._private: dict[str, _Owner] = {}
        self._warned = self._ended = False
        self.writable = False
        self.incomplete = False
        atexit.register(self._remove)  # when this is imported, so after the workers have been ended, which begin later

    def directory(self) -> str:
        """Where to keep compiled code; "" when it cannot be kept. Blocks: it reads and writes files."""
        with self._lock:
            if self._identity is None or self._identity != _identity(self._directory):
                self._directory = self._decide()
                self._identity = _identity(self._directory)
            return self._directory

    @property
    def lasting(self) -> bool:
        """Whether processes that come later will find what is written to the directory that was last returned."""
        return bool(self._directory) and self.writable and self._directory not in self._private

    def adopt(self, directory: str) -> None:
        """Use what the process that started this one has decided, and warned of."""
        with self._lock:
            self._warned = self.writable = True
            self._directory, self._identity = directory, _identity(directory)

    def report(self, error: OSError) -> None:
        """Warn that something could not be kept."""
        self.incomplete = True
        self._warn(
            f"compiled code cannot be kept in {self._directory or self.wanted}: {_reason(error)}. What is missing there is "
            "compiled by each process for itself; AIODEV_CACHE_DIR names another directory"
        )

    def forget_after_fork(self) -> None:
        """In a forked child: what is private is the parent's, which removes it."""
        self._lock = threading.Lock()
        if self._directory in self._private:
            self._identity = None
        for directory, owner in self._private.items():  # else its lock would last as long as this process
            owner.let_go()
            self._private[directory] = _Owner(owner.process)

    def _decide(self) -> str:
        obstacle, readable = None, False
        try:
            obstacle = _whose(_deepest(self.wanted))
            if obstacle is None:
                make_folder(self.wanted)
                obstacle = _whose(self.wanted) or _exposed(self.wanted)
            readable = obstacle is None
            if readable:
                _probe(self.wanted)
        except OSError as error:
            obstacle = _reason(error)
        kept = os.path.realpath(self.wanted) if readable else ""
        if obstacle is None:
            self.writable = True
            return kept
        private = self._make_private()
        self.writable = bool(private)
        if private and kept:
            _link_files(kept, private)
        instead = f"in {private} until this process ends" if private else "in memory"
        self._warn(
            f"compiled code is not kept in {self.wanted}, but {instead}: {obstacle}. What is missing is compiled by each "
            "process for itself; AIODEV_CACHE_DIR names a directory that is this user's alone and can be written to"
        )
        return private or kept

    def _make_private(self) -> str:
        if self._ended:  # nobody would remove it
            return ""
        import tempfile  # costly to import, and hardly ever needed

        try:
            owner = None
            while owner is None:  # another process may take it for one that was left, before it is locked
                made = tempfile.mkdtemp(prefix=_PRIVATE)
                owner = _own(made)
            self._private[made] = owner
            _probe(made)
        except OSError:
            return ""
        _remove_abandoned(os.path.dirname(made))
        return made

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("%s", text)

    def _remove(self) -> None:
        self._ended = True
        for directory, owner in list(self._private.items()):
            if owner.process == os.getpid():
                import shutil  # as costly

                gone = f"{directory}-gone"  # so that nobody finds it who is about to put a file there
                try:
                    os.rename(directory, gone)
                except OSError:
                    gone = directory
                shutil.rmtree(gone, ignore_errors=True)
                owner.let_go()
                del self._private[directory]


class _Owner(NamedTuple):
    """Of a private directory: the process that removes it, and its descriptor with the lock, or -1."""

    process: int
    descriptor: int = -1

    def let_go(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


def _own(directory: str) -> _Owner | None:
    """Lock a private directory; None where another process removes it, or has."""
    try:
        locked = _lock(directory)
    except FileNotFoundError:
        return None
    if locked is None:
        return None
    owner = _Owner(os.getpid(), locked)
    if not os.path.exists(directory):
        owner.let_go()
        return None
    return owner


def _lock(directory: str) -> int | None:
    """The descriptor of a directory of this user's, locked; None where another process has the lock, -1 where there is none.

    The system takes a lock back from a process that ends in whatever way.

    Raises:
        OSError: it is gone, or no directory.
    """
    if fcntl is None:
        return -1
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:  # a file system without locks
        pass
    os.close(descriptor)
    return -1


def _remove_abandoned(folder: str) -> None:
    """Remove this user's private directories whose processes have ended without doing so, as a signal ends them."""
    import shutil  # costly to import, and hardly ever needed

    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(_PRIVATE):
                with contextlib.suppress(OSError):  # another process removes it
                    directory = os.path.join(folder, name)
                    locked = _lock(directory)
                    if locked is not None and locked >= 0:
                        shutil.rmtree(directory, ignore_errors=True)
                        os.close(locked)


def make_folder(folder: str) -> None:
    """Make a directory, and those that lead to it, for this user alone; nothing is done about those that are there.

    Raises:
        OSError: it cannot be made, or would be in a private one of a process that has removed it.
    """
    if os.path.basename(folder).startswith(_PRIVATE):
        os.stat(folder)
        return
    try:
        os.mkdir(folder, 0o700)
    except FileNotFoundError:
        if os.path.dirname(folder) == folder:  # a drive that is not there
            raise
        make_folder(os.path.dirname(folder))
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
    except FileExistsError:
        pass


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, and the folder that it is to be in, so that readers see all of it or nothing, after a crash as well.

    Raises:
        OSError: it cannot be written.
    """
    import tempfile  # costly to import, and needed where something was compiled

    make_folder(str(path.parent))
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def distrusted(directory: str) -> str | None:
    """Why code must not be taken from a directory; None where nobody but this user and root can put any there."""
    try:
        return _whose(directory) or _exposed(directory)
    except OSError as error:
        return _reason(error)


def _identity(directory: str) -> tuple[int, ...] | None:
    """What tells a directory from another in its place, and this user from another; None when there is none."""
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    if not directory:
        return (user,)
    try:
        status = os.lstat(directory)
    except OSError:
        return None
    return user, status.st_dev, status.st_ino, status.st_uid, status.st_mode


def _deepest(path: str) -> str:
    """The last directory that there is on the way to a path."""
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _whose(path: str) -> str | None:
    """Why others could put something else at ``path``, which exists; None when nobody but this user and root could."""
    if not hasattr(os, "geteuid"):  # Windows: a user's directories are the user's
        return None
    for way in dict.fromkeys((path, os.path.realpath(path))):
        for place in (Path(way), *Path(way).parents):
            status = os.lstat(place)
            if place == place.parent:  # whoever owns all there is; in a container of a user without rights it is "nobody"
                break
            if status.st_uid not in (_ROOT, os.geteuid()):
                kind = "is a link of" if stat.S_ISLNK(status.st_mode) else "belongs to"
                return f"{place} {kind} user {status.st_uid}, this process runs as user {os.geteuid()}"
            if not stat.S_ISLNK(status.st_mode) and _others_write(status) and not status.st_mode & stat.S_ISVTX:
                return f"{place} can be written by other users (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def _exposed(directory: str) -> str | None:
    """Why the directory itself is no place for code: as the last of the way, it may not even be shared with the sticky bit."""
    status = os.stat(directory)
    if not stat.S_ISDIR(status.st_mode):
        return f"{directory} is no directory"
    if hasattr(os, "geteuid") and _others_write(status):
        return f"{directory} can be written by other users (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def _others_write(status: os.stat_result) -> bool:
    """Whether somebody other than the owner may write; a group of this user alone is nobody other."""
    shared = status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid)
    return bool(shared or status.st_mode & stat.S_IWOTH)


def _is_own_group(group: int) -> bool:
    """Whether a group is the one that many systems make for each user, with nobody else in it."""
    try:
        import grp
        import pwd

        user, record = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except (ImportError, KeyError):
        return False
    return user.pw_gid == group and record.gr_name == user.pw_name and set(record.gr_mem) <= {user.pw_name}


def _probe(directory: str) -> None:
    """Write a file and remove it.

    Raises:
        OSError: the directory cannot be written to, or has no room. It names no file: this one is nobody's concern.
    """
    name = os.path.join(directory, f".probe-{os.getpid()}-{os.urandom(8).hex()}")
    try:
        with open(name, "xb") as file:
            file.write(bytes(_PROBE))
    except OSError as error:
        raise OSError(error.errno, error.strerror) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _link_files(source: str, target: str) -> None:
    """Make links in ``target`` to the files of ``source`` that only this user or root can have written."""

    def trusted(path: str, kind: int) -> bool:
        status = os.lstat(path)
        owned = not hasattr(os, "geteuid") or (status.st_uid in (_ROOT, os.geteuid()) and not _others_write(status))
        return owned and stat.S_IFMT(status.st_mode) == kind

    with contextlib.suppress(OSError):  # then less is found
        for folder, folders, files in os.walk(source):
            folders[:] = [name for name in folders if trusted(os.path.join(folder, name), stat.S_IFDIR)]
            place = os.path.normpath(os.path.join(target, os.path.relpath(folder, source)))
            make_folder(place)
            for name in files:
                path = os.path.join(folder, name)
                if trusted(path, stat.S_IFREG):
                    os.symlink(path, os.path.join(place, name))


def _reason(error: OSError) -> str:
    """What an error says, and of which file."""
    where = f" ({error.filename})" if error.filename else ""
    return f"{error.strerror or error}{where}"


#: The process's.
cache = Cache(settings.cache_dir)

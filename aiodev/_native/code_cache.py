"""Disk cache of the native code: one file for each executor, keyed by content and by the processor.

What is found is right, in every process and after every upgrade: a file's name has a hash of everything that the code is
made from (:mod:`aiodev._core.sources`) and of the processor. And it is whole: a file begins with a digest of the rest, is
written under another name, forced to the disk and renamed. One that does not hold is deleted, and made again.

Of processes that start first at once, one makes the file and the others wait for it: whoever makes one has the folder's lock,
which the system takes back from a process that ends. The cache saves time and nothing else: where it cannot be written to, or
locked, each process makes its code for itself.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from aiodev._core.cache_directory import UNFINISHED, cache, make_folder, write_whole

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

__all__ = ["folder_lock", "native_directory", "stored"]

_MAGIC = b"aiodev 1"
#: Magic; digest of the rest; number of bytes of the identity, which comes next, and of the content behind that.
_HEADER = struct.Struct("<8s32sQQ")
#: Seconds to wait for another process that makes the file. Larger: one that hangs holds this one up; smaller: both compile.
_PATIENCE = 60.0


def native_directory() -> str:
    """Where the native executor's code is cached; "" when nothing is."""
    directory = cache.directory()
    return str(Path(directory) / "native") if directory else ""


def stored(name: str, identity: str, make: Callable[[], bytes]) -> bytes:
    """The content that the cache has for an identity; else what ``make`` gives, which is stored. Blocks.

    Args:
        name: for the file's name.
        identity: all that decides what the content is.
    """
    directory = native_directory()
    if not directory:
        return make()
    digest = _digest(identity.encode(), 16).hex()
    folder = Path(directory)
    path = folder / f"{name}-{digest}.o"
    content = _read(path, identity)
    if content is None:
        with folder_lock(folder) as locked:
            content = _read(path, identity) if locked else None
            if content is None:
                content = make()
                _write(path, identity, content, alone=locked)
    return content


def _digest(data: bytes, size: int) -> bytes:
    import hashlib  # here, and so off the loop: it loads OpenSSL

    return hashlib.blake2b(data, digest_size=size).digest()


def _read(path: Path, identity: str) -> bytes | None:
    """The content of a file; None where there is none. One that does not hold is deleted."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    data = b""
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read()
    except OSError:
        pass  # of a disk that fails
    finally:
        os.close(descriptor)
    content = _content(data, identity.encode())
    if content is None:
        with contextlib.suppress(OSError):
            path.unlink()
    return content


def _content(data: bytes, identity: bytes) -> bytes | None:
    """The content in a file's bytes, if all of them are as they were written."""
    if len(data) < _HEADER.size:
        return None
    magic, digest, identity_bytes, content_bytes = _HEADER.unpack_from(data)
    rest = data[8 + len(digest) :]
    if magic != _MAGIC or _digest(rest, 32) != digest:
        return None
    begin = _HEADER.size + identity_bytes
    if data[_HEADER.size : begin] != identity or len(data) != begin + content_bytes:
        return None
    return data[begin:]


def _write(path: Path, identity: str, content: bytes, alone: bool) -> None:
    """Keep a content. A cache that cannot be written to is no error: the next process makes it again."""
    name = identity.encode()
    rest = struct.pack("<QQ", len(name), len(content)) + name + content
    data = _MAGIC + _digest(rest, 32) + rest
    try:
        for left in path.parent.glob(UNFINISHED + "*") if alone else ():  # of processes that were killed
            left.unlink()
        write_whole(path, data)
    except OSError as error:
        cache.report(error)


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[bool]:
    """Have a folder's lock, if it is to be had; whether it is."""
    try:
        make_folder(str(folder))
        lock = _Lock(os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        yield False
        return
    try:
        yield lock.acquire(_PATIENCE)
    finally:
        lock.release()


class _Lock:
    """The system's lock of a file, which can be waited for no longer than some time.

    The system wakes who waits for it, but has no timeout. So a thread waits in its place, and if that lasts too long
    the descriptor is the thread's: it lets go of what it gets then.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mutex = threading.Lock()
        self._outcome = threading.Event()
        self._locked = self._abandoned = False

    def acquire(self, patience: float) -> bool:
        """Wait for it; False where there are no locks, or it takes longer than ``patience`` seconds."""
        if fcntl is None:
            return False
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._locked = True
        except BlockingIOError:
            threading.Thread(target=self._wait, name="aiodev-cache-lock", daemon=True).start()
            self._outcome.wait(patience)
            with self._mutex:
                self._abandoned = not self._outcome.is_set()
        except OSError:
            return False
        return self._locked and not self._abandoned

    def release(self) -> None:
        """Let go of it, if it was to be had."""
        if not self._abandoned:
            self._close()

    def _wait(self) -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            self._locked = True
        with self._mutex:
            if self._abandoned:
                self._close()
            self._outcome.set()

    def _close(self) -> None:
        if self._locked:  # a process that was forked meanwhile has the descriptor, too
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)

"""A process's figures for ``python -m aiodev top``, through a local socket that it opens when it is asked to.

Invariants:

1.  The socket lies in a directory of this user's alone, and is this user's alone (mode 0600 in 0700). Both ends ask the kernel
    who the other is, and end the connection with anybody but this user.
2.  A client is told, and never listened to: the server sends one snapshot and closes. So there is nothing to parse on its side,
    and a client can hold it up for a second at most.
3.  The socket goes with the process that made it: it is removed when it is closed or the process exits. A forked child closes
    its copy and leaves the parent's file alone.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import logging
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from aiodev._core.at_fork import in_child
from aiodev._core.streams.stream import living_streams
from aiodev.profiler.metrics import metrics
from aiodev.profiler.tuning import PATIENCE, SNAPSHOT_BYTES, STREAMS_SHOWN

__all__ = ["TopServer", "find_processes", "read_snapshot", "serve_on_start", "serve_top"]

logger = logging.getLogger("aiodev")

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class TopServer:
    """Lets ``python -m aiodev top`` look at this process until it is closed; what :func:`serve_top` gives.

    Attributes:
        path: of the socket.

    Example:
        >>> from aiodev import profiler
        >>> server = profiler.serve_top()
        >>> server.close()
        >>> server
        <aiodev.profiler.TopServer closed>
    """

    def __init__(self) -> None:
        if not hasattr(socket, "SO_PEERCRED"):
            raise NotImplementedError(f"serve_top: {sys.platform} does not tell a socket who is at its other end")
        self._process = os.getpid()
        name = f"{self._process}.sock"
        with _directory(make=True) as (folder, descriptor):
            self.path = folder / name
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=descriptor)  # of a process that had this number before, and was killed
                self._socket.bind(_within(descriptor, name))
                os.chmod(name, 0o600, dir_fd=descriptor)
                self._socket.listen(8)
            except BaseException:
                self._socket.close()
                raise
        threading.Thread(target=self._serve, args=(self._socket,), name="aiodev-top", daemon=True).start()

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:  # it was closed
                return
            with client, contextlib.suppress(OSError):
                client.settimeout(PATIENCE)
                if _is_ours(client):
                    client.sendall(json.dumps(snapshot()).encode())

    def close(self) -> None:
        """Let nobody look any more; a second time does nothing."""
        if self._process == os.getpid() and self._socket.fileno() >= 0:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            with contextlib.suppress(OSError):
                self.path.unlink()
        self._socket.close()

    def __enter__(self) -> TopServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        """It has a socket of this process."""
        raise TypeError("servers are not pickled or copied: each belongs to its process")

    def __repr__(self) -> str:
        state = "closed" if self._socket.fileno() < 0 else f"at {self.path}"
        return f"<aiodev.profiler.TopServer {state}>"


_server: TopServer | None = None
_serving = threading.Lock()


def serve_top() -> TopServer:
    """Let ``python -m aiodev top`` of the same user look at this process, through a local socket.

    No other user can connect, and nothing can be asked for but figures. ``AIODEV_TOP=1`` does the same when the first device
    starts. A second call gives what the first gave, while that is open. A forked child is not looked at; it may serve itself.

    Raises:
        NotImplementedError: the system does not tell a socket who is at its other end, as Linux does.
        PermissionError: the directory for the socket is not this user's alone.

    Example:
        >>> from aiodev import profiler
        >>> with profiler.serve_top() as server:
        ...     print(oct(server.path.stat().st_mode & 0o777))
        0o600
    """
    global _server
    with _serving:
        if _server is None or _server._socket.fileno() < 0:
            _server = TopServer()
        return _server


def snapshot() -> dict[str, Any]:
    """What a client is told."""
    living = [stream for stream in living_streams() if stream.timeline.lost is None]
    living.sort(key=lambda stream: (stream._pending(), stream.timeline.submitted), reverse=True)
    return {
        "pid": os.getpid(),
        "program": " ".join([Path(sys.argv[0]).name or "python", *sys.argv[1:]])[:200],
        "time": time.monotonic(),
        "metrics": [[each.name, each.kind, [[dict(s.labels), s.value] for s in each.samples]] for each in metrics()],
        "streams": [
            {
                "id": stream.stream_id, "device": str(stream.device), "priority": stream.priority,
                "submitted": stream.timeline.submitted, "pending": stream._pending(),
            }
            for stream in living[:STREAMS_SHOWN]
        ],
    }  # fmt: skip


@contextlib.contextmanager
def _directory(make: bool = False) -> Iterator[tuple[Path, int]]:
    """Where sockets are, a directory of this user's alone, and a descriptor of it: what was looked at is what is used.

    Raises:
        PermissionError: it is another's too, or a link.
        FileNotFoundError: there is none, and none is to be made.
    """
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(given) and os.path.isdir(given):
        path = Path(given) / "aiodev"
    else:
        from tempfile import gettempdir  # costly to import, and hardly ever needed

        path = Path(gettempdir()) / f"aiodev-top-{os.geteuid()}"
    if make:
        with contextlib.suppress(FileExistsError):
            path.mkdir(0o700)
    refusal = PermissionError(f"{path} must be a directory that only this user can use; remove it, or set XDG_RUNTIME_DIR")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EACCES):
            raise refusal from None
        raise
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise refusal
        yield path, descriptor
    finally:
        os.close(descriptor)


def _within(descriptor: int, name: str) -> str:
    """The path of a file of an open directory, short enough for a socket wherever that is."""
    return f"/proc/self/fd/{descriptor}/{name}"


def find_processes() -> list[int]:
    """The processes of this user that can be looked at, or could when they were killed.

    Raises:
        PermissionError: others can write where their sockets are.
    """
    try:
        with _directory() as (_, descriptor):
            names = [name.partition(".") for name in os.listdir(descriptor)]
    except FileNotFoundError:
        return []
    return sorted(int(number) for number, _, kind in names if number.isdigit() and kind == "sock")


def read_snapshot(process: int) -> dict[str, Any]:
    """What a process tells.

    Raises:
        ProcessLookupError: it has no socket, or nobody listens there.
        PermissionError: somebody else listens there.
    """
    received = bytearray()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(5 * PATIENCE)
        try:
            with _directory() as (path, descriptor):
                client.connect(_within(descriptor, f"{process}.sock"))
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise ProcessLookupError(f"process {process} does not serve: {error.strerror}") from None
        if not _is_ours(client):
            raise PermissionError(f"{path / str(process)}: another user listens there")
        while len(received) < SNAPSHOT_BYTES and (part := client.recv(1 << 16)):
            received += part
    try:
        snapshot: dict[str, Any] = json.loads(received)
    except ValueError:
        raise ProcessLookupError(f"process {process} went away") from None
    return snapshot


def _is_ours(connection: socket.socket) -> bool:
    """Whether the other end is a process of this user."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())


def _close_at_exit() -> None:
    if _server is not None:
        _server.close()


def _forget_after_fork() -> None:
    global _server, _serving
    server, _server, _serving = _server, None, threading.Lock()
    if server is not None:
        server.close()


def serve_on_start(handle: object) -> None:
    """Serve as soon as a backend starts, since the environment asks for it; a hook of those."""
    try:
        serve_top()
    except (OSError, NotImplementedError) as error:
        logger.warning("AIODEV_TOP=1: %s", error)


atexit.register(_close_at_exit)
in_child(_forget_after_fork)

"""``python -m aiodev top``, and the socket that it looks through."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from forking import run

import aiodev
from aiodev import profiler
from aiodev._cli.main import main
from aiodev._cli.top import show
from aiodev.profiler import top

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="this system does not say who is at a socket's end")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where sockets are while the test runs."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "aiodev"


@pytest.fixture
def server(folder: Path) -> Iterator[profiler.TopServer]:
    """This process serves."""
    with profiler.serve_top() as server:
        yield server


def connect(client: socket.socket, server: profiler.TopServer) -> None:
    """Connect by a path that is short enough."""
    descriptor = os.open(server.path.parent, os.O_RDONLY)
    client.connect(f"/proc/self/fd/{descriptor}/{server.path.name}")
    os.close(descriptor)


def test_socket_is_this_users_alone(server, folder) -> None:
    """The socket has mode 0600, in a directory with mode 0700."""
    assert server.path == folder / f"{os.getpid()}.sock"
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_nobody_serves_unless_asked(folder) -> None:
    """Nothing is opened by a program that does not ask for it."""
    aiodev.Stream("cpu").call(int).synchronize_blocking()
    assert not folder.exists()
    assert top.find_processes() == []


async def test_snapshot_has_devices_and_streams(server) -> None:
    """A client gets the metrics, and the streams with what they have pending."""
    stream, array = aiodev.Stream("cpu", priority=-1), aiodev.empty(8, device="cpu")
    await stream.copy(array, np.ones(8))
    snapshot = await asyncio.to_thread(top.read_snapshot, os.getpid())
    assert snapshot["pid"] == os.getpid()
    assert {name for name, _, _ in snapshot["metrics"]} == {metric.name for metric in profiler.metrics()}
    (mine,) = (each for each in snapshot["streams"] if each["id"] == stream.stream_id)
    assert mine == {"id": stream.stream_id, "device": "cpu:0", "priority": -1, "submitted": 1, "pending": 0}


def test_second_call_gives_the_first_server(server, folder) -> None:
    """A process has one socket; closing it removes it, and another can be opened."""
    assert profiler.serve_top() is server
    server.close()
    server.close()
    assert not server.path.exists()
    assert repr(server) == "<aiodev.profiler.TopServer closed>"
    with profiler.serve_top() as another:
        assert another is not server
        assert top.find_processes() == [os.getpid()]


def test_another_user_is_not_told(server, monkeypatch) -> None:
    """Who connects as another user is told nothing; who meets another user at the other end does not listen."""
    monkeypatch.setattr(top, "_is_ours", lambda connection: False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(30)
        connect(client, server)
        assert client.recv(1) == b""
    with pytest.raises(PermissionError, match="another user"):
        top.read_snapshot(os.getpid())


def test_peer_is_asked_of_the_kernel(monkeypatch) -> None:
    """A connection's other end is ours if the kernel says that it is this user's."""
    one, two = socket.socketpair()
    with one, two:
        assert top._is_ours(one)
        monkeypatch.setattr(os, "geteuid", lambda: 12345678)
        assert not top._is_ours(one)


def test_directory_that_others_can_use(folder) -> None:
    """A directory that is not this user's alone is not used."""
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with pytest.raises(PermissionError, match="only this user"):
        profiler.serve_top()
    with pytest.raises(PermissionError, match="only this user"):
        top.find_processes()


def test_link_in_place_of_the_directory(folder, tmp_path) -> None:
    """A link is not followed, wherever it leads."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="only this user"):
        profiler.serve_top()


def test_client_that_does_not_read(server, monkeypatch) -> None:
    """A client that hangs does not keep others from being told."""
    monkeypatch.setattr(top, "PATIENCE", 0.05)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as idle:
        connect(idle, server)
        assert top.read_snapshot(os.getpid())["pid"] == os.getpid()


def test_file_of_a_process_that_was_killed(folder, monkeypatch) -> None:
    """A socket that nobody listens at is passed by, and taken over by a process of that number."""
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        monkeypatch.chdir(folder)
        left.bind(f"{os.getpid()}.sock")
    with pytest.raises(ProcessLookupError):
        top.read_snapshot(os.getpid())
    with profiler.serve_top():
        assert top.read_snapshot(os.getpid())["pid"] == os.getpid()


def test_forked_child_is_not_looked_at(tmp_path) -> None:
    """A child has no socket, leaves that of its parent alone, and may open its own."""
    run(
        """
        from aiodev import profiler
        from aiodev.profiler import top

        server = profiler.serve_top()

        def child():
            assert server.path.exists()
            assert "closed" in repr(server)
            with profiler.serve_top() as mine:
                assert mine is not server
                assert top.find_processes() == sorted([os.getpid(), os.getppid()])

        in_child(child)
        assert top.read_snapshot(os.getpid())["pid"] == os.getpid()
        """,
        XDG_RUNTIME_DIR=str(tmp_path),
    )


def test_setting_opens_it_with_the_first_device(tmp_path) -> None:
    """With ``AIODEV_TOP=1`` a process serves from when its first device starts, and leaves nothing behind."""
    run(
        """
        from aiodev.profiler import top

        assert top.find_processes() == []
        use("cpu")
        assert top.read_snapshot(os.getpid())["pid"] == os.getpid()
        """,
        XDG_RUNTIME_DIR=str(tmp_path),
        AIODEV_TOP="1",
    )
    assert list((tmp_path / "aiodev").iterdir()) == []


def test_command_shows_a_process(server, capsys) -> None:
    """The command shows devices and streams of what serves, with rates from the second look on."""
    aiodev.Stream("cpu").call(int).synchronize_blocking()
    assert main(["top", str(os.getpid()), "--interval", "0.05", "--count", "2"]) == 0
    shown = capsys.readouterr().out
    assert f"process {os.getpid()}:" in shown
    assert "cpu:0" in shown


def test_command_without_a_process(folder, capsys) -> None:
    """Where nobody serves, the command says how to begin."""
    assert main(["top", "--count", "1"]) == 1
    assert "AIODEV_TOP=1" in capsys.readouterr().err
    assert main(["top", "1", "--count", "1"]) == 1
    assert "no process 1 serves" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", ["--interval=nan", "--interval=inf", "--interval=-1", "--count=-1", "--streams=-1", "--count=x"]
)
def test_command_refuses_what_makes_no_sense(option: str, capsys) -> None:
    """As any argument, by its name, and before anything is looked at."""
    with pytest.raises(SystemExit):
        main(["top", option])
    name, _, value = option.partition("=")
    message = capsys.readouterr().err
    assert f"argument {name}" in message and value in message


def test_rates_are_between_two_looks() -> None:
    """A rate is what came since the last look, by the seconds between."""
    metrics = [["aiodev_streams", "gauge", [[{"device": "cpu:0"}, 1]]]]

    def look(time: float, done: int) -> dict[str, object]:
        counter = ["aiodev_operations_completed", "counter", [[{"device": "cpu:0"}, done]]]
        stream = {"id": 7, "device": "cpu:0", "priority": 0, "submitted": done, "pending": 2}
        return {"pid": 1, "program": "x", "time": time, "metrics": [*metrics, counter], "streams": [stream]}

    lines = show(look(12.0, 300), look(10.0, 100), 5).splitlines()
    assert lines[2].split()[:3] == ["cpu:0", "1", "100"]
    assert lines[4].split() == ["7", "cpu:0", "100", "2", "0"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who is at a socket's end")
def test_systems_without_credentials_are_refused(monkeypatch, folder) -> None:
    """Where a system does not say who connects, nothing is opened."""
    monkeypatch.delattr(socket, "SO_PEERCRED")
    with pytest.raises(NotImplementedError, match="who is at its other end"):
        profiler.serve_top()


def test_directory_with_a_long_name(tmp_path, monkeypatch) -> None:
    """A path that is longer than a socket's may be does no harm."""
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with profiler.serve_top() as server:
        assert server.path.parent.parent == long
        assert top.read_snapshot(os.getpid())["pid"] == os.getpid()
    assert list((long / "aiodev").iterdir()) == []

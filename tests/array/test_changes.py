"""AIODEV_DEBUG=1: a host array that changes before a copy has read it is told, one that changes later is not."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import aiodev
from aiodev import profiler
from aiodev._array.copy import copy_arrays
from aiodev._array.host_changes import copy_checked
from aiodev._core.streams import stream
from aiodev.testing.latch import Latch


@pytest.fixture(autouse=True)
def debug_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as copies are concerned."""
    monkeypatch.setattr(stream.copy_arrays, "call", partial(copy_checked, copy_arrays))


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("how", ["copy", "copy_from"])
def test_a_source_that_changes_too_early_is_told_with_the_line(
    caplog: pytest.LogCaptureFixture, gaps: bool, how: str
) -> None:
    """By shape, dtype, stream and place of submission."""
    with aiodev.Stream("cpu") as stream, caplog.at_level(logging.ERROR, "aiodev"):
        array, host = aiodev.empty(100), np.zeros(200)[::2] if gaps else np.zeros(100)
        held = stream.timeline.gate()  # not one that waits for the program, which might then write the source
        done = stream.copy(array, host) if how == "copy" else array.copy_from(host)
        host[50] = 1
        held.open()
        done.synchronize_blocking(30)
    (record,) = caplog.records
    message = record.getMessage()
    assert f"{__file__}:" in message and "(100,)" in message and "float64" in message and str(stream.stream_id) in message


def test_a_source_may_change_when_the_copy_is_done(caplog: pytest.LogCaptureFixture) -> None:
    """Whether that is known from its completion, the stream, an event, or a read of what it wrote."""
    with aiodev.Stream("cpu") as stream, caplog.at_level(logging.ERROR, "aiodev"):
        array, host = aiodev.empty(100_000), np.zeros(100_000)
        for number in range(40):
            done = array.copy_from(host)
            event = stream.record_event()
            for wait in (
                done.synchronize_blocking, stream.synchronize_blocking, event.synchronize_blocking, array.numpy_blocking
            )[number % 4 :][:1]:  # fmt: skip
                wait(30)
            host[:] = number
        stream.synchronize_blocking(30)
    assert not caplog.records


def test_a_constructors_source_may_change_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody reads it any more."""
    with aiodev.Stream("cpu") as stream, caplog.at_level(logging.ERROR, "aiodev"):
        host, held = np.zeros(100), Latch(stream)
        for number in range(4):
            array = aiodev.asarray(host)
            stream.copy(aiodev.empty(100), array)
            del array
            host[:] = number
        held.release()
        stream.synchronize_blocking(30)
    assert not caplog.records


async def test_profiles_show_the_check() -> None:
    """Behind the copy, as the operation that it is."""
    stream, array = aiodev.Stream("cpu"), aiodev.empty(100, device="cpu")
    async with profiler.profile() as prof:
        await stream.copy(array, np.zeros(100))
    own = [operation for operation in prof.operations if operation.stream_id == stream.stream_id]
    assert [(operation.kind, operation.name) for operation in own] == [("copy", "copy"), ("call", "check_host_array")]


async def test_a_source_may_be_written_in_stream_order(caplog: pytest.LogCaptureFixture) -> None:
    """By functions and futures of the program's ahead of the copy, on its stream or one that it follows."""
    async with aiodev.Stream("cpu") as stream:
        with caplog.at_level(logging.ERROR, "aiodev"):
            other, host = aiodev.Stream("cpu"), np.zeros(3)
            opened = asyncio.get_running_loop().create_future()

            async def download() -> None:
                await opened
                host[:] = 1

            array, again, last = (aiodev.empty(3) for _ in range(3))
            stream.wait_future(download())
            array.copy_from(host)
            other.wait_stream(stream)
            other.call(host.__iadd__, 1)
            stream.wait_stream(other)
            again.copy_from(host)
            stream.call(host.fill, 7)
            last.copy_from(host)
            opened.set_result(None)
            found = [await x.tolist() for x in (array, again, last)]
    assert found == [[1] * 3, [2] * 3, [7] * 3] and not caplog.records


def test_the_debug_mode_of_a_process() -> None:
    """The setting is enough."""
    code = (
        "import numpy as np, aiodev\n"
        "with aiodev.Stream('cpu') as stream:\n"
        "    array, host = aiodev.empty(3), np.zeros(3)\n"
        "    held = stream.timeline.gate()\n"
        "    done = array.copy_from(host)\n"
        "    host[:] = 1\n"
        "    held.open()\n"
        "    done.synchronize_blocking(60)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "AIODEV_DEBUG": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "changed before it was read" in found.stderr and "<string>:5" in found.stderr

"""A plugin of pytest that has tests which name the CPU use the GPU: ``-p on_gpu``.

The library's tests name ``"cpu"``, so that they mean the same wherever they run. Here every name of a CPU device becomes
``cuda:0``, for what resolves devices; but memory of the host that another library hands over stays the host's. What was
launched there is counted, and said at the end, with how many of the tests that passed launched any: few would mean that little
was tested there. A test that meets a function which is for the CPU alone, by its message, is skipped. Tests that are coroutines
run in a loop of their own, whichever plugins there are. ``ON_GPU_SHARE=k/n`` leaves all tests of a file but every ``n``-th to
other processes.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Iterator
from typing import Any

import pytest

from aiodev._array import foreign
from aiodev._core.backend.device import Device
from aiodev._core.backend.registry import Registry
from aiodev._core.streams.stream import Stream

_resolve = Registry.resolve
_bind = Stream._bind
_consume = foreign._consume
_consuming: list[Any] = []
_launched: list[int] = [0]
_tests = {"passed": 0, "launched": 0}


def _on_gpu(registry: Registry, device: Any = None) -> Any:
    named = isinstance(device, str | Device) and Device(device).type == "cpu"
    return _resolve(registry, "cuda:0" if named and not _consuming else device)


def _on_host(x: Any, wanted: Device | None) -> Any:
    """The host's memory as an array on the CPU, which a kernel on the GPU would fail to reach."""
    _consuming.append(x)
    try:
        return _consume(x, wanted)
    finally:
        _consuming.pop()


def _counting(stream: Stream) -> None:
    _bind(stream)
    launch = stream._launch
    if stream.device.type != "cuda":
        return

    def counted(*arguments: Any) -> int:
        _launched[0] += 1
        return launch(*arguments)

    stream._launch = counted


Registry.resolve = _on_gpu  # type: ignore[method-assign]
Stream._bind = _counting  # type: ignore[method-assign]
foreign._consume = _on_host


@pytest.hookimpl(tryfirst=True)  # before those that have run are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is another process's share."""
    share, shares = map(int, os.environ.get("ON_GPU_SHARE", "0/1").split("/"))
    config.hook.pytest_deselected(items=[item for number, item in enumerate(items) if number % shares != share])
    items[:] = items[share::shares]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Count the tests that pass, and those that launch."""
    before = _launched[0]
    yield
    _tests["passed"] += 1
    _tests["launched"] += _launched[0] > before


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    named = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in named}))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
    """Take for skipped what a GPU cannot do yet, and says so."""
    report: Any = yield
    said = "" if call.excinfo is None else str(call.excinfo.value)
    missing = call.excinfo is not None and call.excinfo.errisinstance(NotImplementedError) and "cuda:0" in said
    if missing or "cannot be updated atomically on CUDA" in said:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {said}")
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how much there was for the GPU to do."""
    tests = f"{_tests['launched']} of {_tests['passed']} tests that passed"
    terminalreporter.write_line(f"{_launched[0]} launches on cuda:0, by {tests}")

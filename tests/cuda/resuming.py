"""A plugin of pytest for machines that are lent for minutes: what hangs, crashes or loses the device costs one test.

``gpu_check.sh`` starts pytest again until it comes to its end, each time without the tests that had begun before. The file that
``AIODEV_TESTS_BEGUN`` names has them, and ``finished`` as its last line when all have run.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: Seconds after which a test counts as hanging: the stacks of all threads are written, and the process ends.
LIMIT = float(os.environ.get("AIODEV_TESTS_LIMIT", "60"))

_begun = Path(os.environ["AIODEV_TESTS_BEGUN"])
_stderr = os.fdopen(os.dup(2), "w")  # before pytest puts a file in its place


def _write(line: str) -> None:
    with _begun.open("a") as file:
        file.write(f"{line}\n")


_losses: list[str] = []


def pytest_exception_interact(call: pytest.CallInfo[Any]) -> None:
    """Take note of a loss that a test failed of."""
    if call.excinfo is not None and call.excinfo.typename == "DeviceLostError":
        _losses.append(str(call.excinfo.value))


def _loss() -> str | None:
    """Why the device is lost, which every test to come would fail of; None while it is not."""
    if _losses:
        return _losses[0]
    if "aiodev._backends.cuda.executor.executor" not in sys.modules:
        return None
    from aiodev._core.backend.registry import registry

    executor = vars(registry.handle("cuda").backend).get("executor")
    for device in executor.devices if executor is not None else ():
        if status := device.native.lost.value:
            return str(executor.driver.error(status, f"cuda:{device.index} is lost"))
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has begun."""
    known = set(_begun.read_text().splitlines()) if _begun.exists() else set()
    left_out = [item for item in items if item.nodeid in known]
    items[:] = [item for item in items if item.nodeid not in known]
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Say that a test begins; end the process if it does not end, or leaves the device lost."""
    _write(item.nodeid)
    faulthandler.dump_traceback_later(LIMIT, exit=True, file=_stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        if (loss := _loss()) is not None:
            pytest.exit(f"{item.nodeid} left the device lost: {loss}", returncode=3)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say at once what has failed: a process that time runs out for gives no account of it."""
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        said = str(report.longrepr if crash is None else f"{crash.path}:{crash.lineno}: {crash.message}")
        _stderr.write(f"\n── failed: {report.nodeid}: {' '.join(said.split())[:500]}\n")
        _stderr.flush()


def pytest_sessionfinish(exitstatus: int) -> None:
    """Say that all have run."""
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        _write("finished")

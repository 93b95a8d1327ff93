"""Examples that serve HTTP, as processes."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

__all__ = ["browser", "end", "interrupt", "metric", "start", "wait_until_healthy"]


def start(program: Path, *arguments: str, **options: Any) -> tuple[subprocess.Popen[str], str]:
    """A service, and its address, which it prints."""
    process = subprocess.Popen([sys.executable, str(program), *arguments], stdout=subprocess.PIPE, text=True, **options)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def wait_until_healthy(address: str) -> None:
    """The socket listens from the start; the answer comes when the kernels are there."""
    assert httpx.get(f"{address}/health", timeout=60).json()["status"] == "ok"


def end(process: subprocess.Popen[str]) -> int:
    """Its status, after it was asked to end."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(30)
    finally:
        process.kill()
        assert process.stdout is not None
        process.stdout.close()


def interrupt(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its status, and what it had yet to print, after Ctrl-C."""
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    return process.returncode, printed, errors


def metric(url: str, name: str) -> float:
    """A value that Prometheus would see."""
    (value,) = re.findall(rf"^{name} (\S+)$", httpx.get(f"{url}/metrics").text, re.MULTILINE)
    return float(value)


def browser(profile: Path, url: str, *options: str) -> str:
    """The document of a page as a browser has it after its programs have run."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium here; Debian has it as the package chromium")
    command = [program, "--headless", "--no-sandbox", *options, "--dump-dom", f"--user-data-dir={profile}", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

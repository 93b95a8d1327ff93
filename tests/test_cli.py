"""``python -m aiodev``."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import aiodev
from aiodev._core.cache_directory import cache
from aiodev._core.time_slice import time_slice
from aiodev._core.usable_cores import allowed_cores

ROOT = Path(__file__).parents[1]


def run_cli(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "aiodev", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("executor", ["native", "python"])
def test_info_says_what_there_is(executor: str) -> None:
    """Versions, backends with their executor and threads, devices, and where each setting comes from."""
    done = run_cli("info", AIODEV_EXECUTOR=executor, AIODEV_CPU_DEVICES="2", AIODEV_CPU_THREADS="2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("numba") for line in lines)
    (backend,) = [line for line in lines if line.startswith("backend cpu")]
    assert "2 device(s)" in backend and f"executor {executor}" in backend and "1 worker thread(s)" in backend or (
        executor == "python" and "2 worker thread(s)" in backend  # the portable executor has at least two
    )
    (workers,) = [line.strip() for line in lines if "by affinity" in line]
    count = 4 if executor == "python" else 2
    assert workers.startswith(f"{count} workers: AIODEV_CPU_THREADS=2; {len(allowed_cores())} core") and "quota" in workers
    assert sum(line.strip().startswith("cpu:") for line in lines) == 2
    (setting,) = [line for line in lines if "AIODEV_EXECUTOR" in line and "backend" not in line]
    assert executor in setting and "from the environment" in setting
    assert lines[-1] == f"compiled code is kept in {cache.directory()}"


@pytest.mark.parametrize(("spin", "shown"), [("auto", "auto: "), ("7", "7")])
def test_info_says_how_threads_spin(spin: str, shown: str) -> None:
    """What was stated, or what that comes to at present."""
    done = run_cli("info", AIODEV_SPIN_US=spin)
    (setting,) = [line.split(maxsplit=1)[1] for line in done.stdout.splitlines() if line.strip().startswith("AIODEV_SPIN_US")]
    assert setting.startswith(shown) and ("now" in setting) == (spin == "auto")


def test_info_has_settings_in_columns() -> None:
    """A variable that is empty is not set, there as elsewhere."""
    lines = run_cli("info", AIODEV_CPU_THREADS=" ", AIODEV_SPIN_US="7").stdout.splitlines()
    rows = [line for line in lines if line.startswith("    AIODEV_")]
    assert len({len(row) - len(row.split(maxsplit=1)[1]) for row in rows if len(row.split()) > 2}) == 1
    origins = {row.split()[0]: row.endswith("from the environment") for row in rows}
    assert origins["AIODEV_SPIN_US"] and not origins["AIODEV_CPU_THREADS"]


def test_info_says_which_time_slices_threads_get() -> None:
    """What the system gives a thread, and one that asks; or that it tells nothing."""
    with ThreadPoolExecutor(1) as pool:
        there = pool.submit(time_slice).result()
    found = [
        next(line for line in run_cli("info", AIODEV_SLICE_US=asked).stdout.splitlines() if line.startswith("time slices"))
        for asked in ("0", "150")
    ]
    if not there:
        assert found == 2 * ["time slices are the system's, which tells nothing of them"]
        return
    assert found[0] == f"time slices of threads: {there / 1e6:g} ms, left alone"
    if there > 150_000:
        assert found[1] == f"time slices of threads: {there / 1e6:g} ms, 0.15 ms for those that wait for devices, and workers"


def test_info_says_why_a_backend_cannot_start() -> None:
    """A backend that cannot start is listed with its reason, and the others all the same."""
    code = (
        "import sys, aiodev\n"
        "class Broken(aiodev.Backend):\n"
        "    name = 'broken'\n"
        "    def unavailable_reason(self): return 'the driver is too old'\n"
        "    def device_count(self): return 0\n"
        "Broken.__abstractmethods__ = frozenset()\n"
        "aiodev.register_backend('broken', Broken)\n"
        "from aiodev._cli.main import main\n"
        "sys.exit(main(['info']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "backend broken: cannot start: the driver is too old" in done.stdout
    assert "backend cpu: 1 device(s)" in done.stdout


def test_a_bad_setting_names_its_variable() -> None:
    """A value that a setting cannot have ends the program with the variable's name."""
    done = run_cli("info", AIODEV_CPU_THREADS="many")
    assert done.returncode != 0
    assert "AIODEV_CPU_THREADS" in done.stderr


def test_no_command_shows_the_commands() -> None:
    """Without a command the exit status is 2 and both commands are shown."""
    done = run_cli()
    assert done.returncode == 2
    assert "COMMAND" in done.stderr


MODULE = """
import aiodev

@aiodev.kernel
def tripled(i, x):
    x[i] = 3 * x[i]

async def warm_up():
    await tripled[1](aiodev.zeros(1, dtype="f4"))
"""


def test_warm_up_compiles_functions_and_what_a_module_launches(cache_without_kernels: Path, tmp_path: Path) -> None:
    """Once: the second time everything is there. Where standard error is no terminal there is no bar."""
    (tmp_path / "service_kernels.py").write_text(MODULE)
    environment = {"AIODEV_CACHE_DIR": str(cache_without_kernels), "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    said = []
    for _ in range(2):
        done = run_cli("warm-up", "negative", "service_kernels", "--dtype", "float32", **environment)
        assert done.returncode == 0 and "%" not in done.stderr, done.stderr
        said.append(done.stdout.partition(", in ")[0])
        assert str(cache_without_kernels) in done.stdout
    assert said == ["2 kernels compiled, 0 were there", "0 kernels compiled, 2 were there"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "--all"),
        (["no_such_module"], "no_such_module"),
        (["json"], "json has no function warm_up()"),
        (["add", "--into", "there", "--target", "z80"], "not for z80"),
        (["add", "--target", "x86-64-v3"], "--into"),
        (["add", "--dtype", "float31"], "--dtype float31"),
        (["add", "--dtype", "object"], "--dtype object"),
        (["add", "--device", "gpu"], "no backend is called 'gpu'"),
        (["add", "--device", "cpu:7000"], "this machine has"),
        (["add", "--into", "/dev/null"], "/dev/null is no directory"),
        (["add", "--into", "/dev/null/there"], "/dev/null is no directory"),
    ],
)
def test_warm_up_says_what_it_cannot_do(arguments: list[str], reason: str, tmp_path: Path) -> None:
    """In one line, with status 2."""
    done = run_cli("warm-up", *arguments)
    assert done.returncode == 2 and reason in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1 and not done.stdout


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no directory in which nobody can make any")
def test_warm_up_says_that_it_could_not_write() -> None:
    done = run_cli("warm-up", "add", "--into", "/proc/there")
    assert done.returncode == 2 and "--into" in done.stderr and "/proc/there" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("import json\nimport not_there", 2, "No module named 'not_there'"),
        ("import json\n\njson.nothing", 3, "AttributeError"),
        ("x = (", 1, "SyntaxError"),
    ],
)
def test_warm_up_says_where_a_module_fails(text: str, line: int, reason: str, tmp_path: Path) -> None:
    """The file and the line, which may be of another module that it imports."""
    (tmp_path / "inner_kernels.py").write_text(text)
    (tmp_path / "outer_kernels.py").write_text("import inner_kernels")
    done = run_cli("warm-up", "outer_kernels", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert f"outer_kernels cannot be imported: {tmp_path}/inner_kernels.py:{line}: " in done.stderr and reason in done.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--device", "foo"], "no backend is called 'foo'"),
        (["--output", "/dev/null"], "/dev/null is no directory"),
        (["--device", "cpu:7000"], "this machine has"),
    ],
)
def test_demo_says_what_it_cannot_do(arguments: list[str], reason: str, tmp_path: Path) -> None:
    """In one line, with status 2; nothing is made."""
    done = run_cli("demo", "--quick", "--output", str(tmp_path / "made"), *arguments)
    assert done.returncode == 2 and reason in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not list(tmp_path.iterdir())


def test_the_version() -> None:
    """As pip and others show it."""
    done = run_cli("--version")
    assert (done.returncode, done.stdout) == (0, f"aiodev {aiodev.__version__}\n")

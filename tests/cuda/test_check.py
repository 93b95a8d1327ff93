"""``gpu_check.sh``, the one command for a lent GPU: what it starts, how it ends in time, and what it leaves behind.

A script stands in for Python, which notes what it is asked to run and in which environment.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import search_path

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "tests" / "bench" / "gpu_check.sh"

pytestmark = pytest.mark.exhaustive

#: Files of the library's tests that are another part's.
FACTORS = {"test_factorizations", "test_fft"}
#: Those that are about how kernels are compiled for the CPU, or name devices themselves, or start processes that do.
FOR_THE_CPU = {
    "test_every_function", "test_overlap", "test_overlap_programs", "test_per_length", "test_random_devices",
    "test_random_quality", "test_warmup",
}  # fmt: skip

Check = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Run the command with a script in Python's place: ``body`` is what that does, in shell."""

    def run(*parts: str, body: str = "", path: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\necho \"$*\" >>\"{tmp_path}/asked\"\n{body}\n")
        python.chmod(0o755)
        (tmp_path / "bin").mkdir(exist_ok=True)
        own = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        own |= {
            "PATH": f"{tmp_path}/bin:{path or '/usr/bin:/bin'}",
            "PYTHON": str(python),
            "OUT": str(tmp_path / "out"),
            "AIODEV_CACHE_DIR": str(tmp_path / "cache"),
        }
        return subprocess.run(
            ["bash", str(CHECK), *parts], capture_output=True, text=True, timeout=60, env=own | environment
        )

    return run


def _asked(tmp_path: Path) -> list[str]:
    return (tmp_path / "asked").read_text().splitlines()


def test_a_compiler_that_is_a_script_is_no_home(check: Check, tmp_path: Path) -> None:
    """``nvcc`` may start another; its folder, without libdevice, is not what numba-cuda is told, nor is a wrong setting."""
    (tmp_path / "bin").mkdir()
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.write_text("#!/bin/sh\nexec /elsewhere/bin/nvcc\n")
    nvcc.chmod(0o755)
    check("first", body='echo "home=${CUDA_HOME:-none}"', CUDA_HOME=str(tmp_path / "wrong"))
    log = (tmp_path / "out" / "log.txt").read_text()
    assert f"home={tmp_path}" not in log, log


def test_a_home_has_libdevice(check: Check, tmp_path: Path) -> None:
    """A toolkit's folder is taken where that of ``CUDA_HOME`` lacks what is compiled with."""
    (tmp_path / "toolkit" / "nvvm" / "libdevice").mkdir(parents=True)
    (tmp_path / "toolkit" / "nvvm" / "libdevice" / "libdevice.10.bc").touch()
    check("first", body='echo "home=$CUDA_HOME"', CUDA_HOME=str(tmp_path), CUDA_PATH=str(tmp_path / "toolkit"))
    assert f"home={tmp_path / 'toolkit'}\n" in (tmp_path / "out" / "log.txt").read_text()


def test_all_parts_have_one_deadline(check: Check, tmp_path: Path) -> None:
    """Parts that hang are ended in time for the summary; those that are left are not begun, and count as failed."""
    began = time.monotonic()
    done = check("measured", body="sleep 50", BUDGET="8")
    assert time.monotonic() - began < 30
    assert done.returncode == 1
    assert done.stdout.count("NO TIME") >= 7
    assert len(_asked(tmp_path)) < 7
    assert (tmp_path / "out" / "cache.tar.gz").exists()


def test_the_summary_is_last_and_short(check: Check, tmp_path: Path) -> None:
    """However much is said, what is printed stays within 12,000 characters, and ends with a line for each part."""
    body = f'for i in $(seq 400); do echo "$i: {"a long line " * 10}"; done'
    done = check("probe", "correct", "measured", body=body)
    assert len(done.stdout) < 12_000
    table = done.stdout.rsplit("\n\n", 1)[1].splitlines()
    names = ["first", "probe", "rules", "device", "graphs", "factors", "callback", "rows-callback", "event", "rows-event"]
    figures = ["compiler", "launching", "moving", "replaying", "waiting", "waiting-callback", "waiting-event"]
    assert [line.split()[0] for line in table] == [*names, *figures]
    assert (tmp_path / "out" / "summary.txt").read_text().strip() == "\n".join(table).strip()


def test_tests_are_counted_over_their_processes(check: Check, tmp_path: Path) -> None:
    """A part that takes several processes says what they came to together, and how many ended early."""
    body = """
case "$*" in *pytest*)
    if [ ! -s "$AIODEV_TESTS_BEGUN" ]; then
        echo a_test >>"$AIODEV_TESTS_BEGUN"
        echo "2 passed, 1 failed in 1.00s"
        exit 1
    fi
    echo finished >>"$AIODEV_TESTS_BEGUN"
    echo "3 passed in 1.00s"
esac
"""
    done = check("rules", body=body)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("rules")]
    assert "FAILED" in line and "5 passed" in line and "1 failed" in line and "1 ended early" in line


def test_the_librarys_files_run_side_by_side(check: Check, tmp_path: Path) -> None:
    """Each is tested in processes of its own, several where that takes long; what they came to is counted together."""
    body = """
case "$*" in *pytest*)
    echo "share $ON_GPU_SHARE"
    echo finished >>"$AIODEV_TESTS_BEGUN"
    echo "2 passed in 1.00s"
    case "$*" in *test_sorting.py*) echo "── failed: test_sorting.py::test_x: it failed"; exit 1;; esac
esac
"""
    done = check("library", body=body)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("library")]
    files = [line for line in _asked(tmp_path) if "pytest" in line]
    assert "FAILED" in line and f"{2 * len(files)} passed" in line and "ended early" not in line
    found = {Path(file.split()[-1]).stem for file in files}
    there = {path.stem for path in (ROOT / "tests" / "kernels").glob("test_*.py")}
    assert found == there - FACTORS - FOR_THE_CPU and all("-p on_gpu" in file for file in files)
    sorted_ = [file for file in files if file.endswith("test_sorting.py")]
    log = (tmp_path / "out" / "log.txt").read_text()
    assert len(sorted_) == 3 and all(log.count(f"share {share}/3\n") >= 1 for share in range(3))
    assert not any("--exhaustive" in file for file in files)
    assert "── failed: test_sorting.py::test_x" in done.stdout


def test_figures_come_back_as_one_file(check: Check, tmp_path: Path) -> None:
    """What the probe and each group found, whatever runs: a lent machine gives few files back."""
    body = """
case "$*" in
*gpu_probe*) echo '{"driver": 13000}' >"$PROBE_JSON" ;;
*waiting*) exit 1 ;;
*--json*) for file; do :; done; echo '{"figures": []}' >"$file" ;;
esac
"""
    check("probe", "measured", body=body)
    found = json.loads((tmp_path / "out" / "figures.json").read_text())
    groups = dict.fromkeys(["launching", "moving", "replaying"], {"figures": []})
    assert found == {"probe": {"driver": 13000}, **groups}
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"log.txt", "figures.json", "summary.txt", "cache.tar.gz"}


def test_what_was_compiled_is_carried_on(check: Check, tmp_path: Path) -> None:
    """The cache comes back as one file, which the next call takes."""
    check("first", body='mkdir -p "$AIODEV_CACHE_DIR/cuda"; echo cubin >"$AIODEV_CACHE_DIR/cuda/kernel.bin"')
    packed = tmp_path / "out" / "cache.tar.gz"
    with tarfile.open(packed) as file:
        assert "./cuda/kernel.bin" in file.getnames()
    found = 'cat "$AIODEV_CACHE_DIR/cuda/kernel.bin"'
    check("first", body=found, CACHE=str(packed), AIODEV_CACHE_DIR=str(tmp_path / "next"), OUT=str(tmp_path / "then"))
    assert "cubin\n" in (tmp_path / "then" / "log.txt").read_text()


def test_a_large_cache_is_carried_on_in_pieces(check: Check, tmp_path: Path) -> None:
    """A lent machine gives no large file back; the pieces are taken by the name that they have in common."""
    check("first", body='head -c 50000 /dev/urandom >"$AIODEV_CACHE_DIR/kernel.bin"', CACHE_PIECE="20000")
    packed = tmp_path / "out" / "cache.tar.gz"
    assert not packed.exists() and len(list(packed.parent.glob("cache.tar.gz.*"))) == 3
    there = {"CACHE": str(packed), "AIODEV_CACHE_DIR": str(tmp_path / "next"), "OUT": str(tmp_path / "then")}
    check("first", body="true", **there)
    assert (tmp_path / "next" / "kernel.bin").read_bytes() == (tmp_path / "cache" / "kernel.bin").read_bytes()


def test_wheels_that_are_carried_along(check: Check, tmp_path: Path) -> None:
    """Each is installed by itself before what the machine has; one that is for another Python costs the others nothing."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name, module in {"good-1-py3-none-any.whl": "good", "bad-1-cp27-cp27m-win32.whl": "bad"}.items():
        with zipfile.ZipFile(wheels / name, "w") as wheel:
            wheel.writestr(f"{module}.py", f"print('this is {module}')\n")
    body = f'case "$*" in *pip*) exit 1;; *zipfile*) exec {sys.executable} "$@";; *) {sys.executable} -c "import good";; esac'
    done = check("first", body=body, WHEELS=str(wheels))
    assert "left out" in done.stdout and "bad-1-cp27" in done.stdout
    assert "this is good" in done.stdout


def test_what_cannot_run_is_said(check: Check) -> None:
    """Without NVIDIA's checker, what needs it is left out by name, neither passed nor failed."""
    if shutil.which("compute-sanitizer", path="/usr/bin:/bin") or list(Path("/usr/local").glob("cuda*/bin/compute-sanitizer")):
        pytest.skip("NVIDIA's checker is installed")
    done = check("sanitized")
    lines = [line for line in done.stdout.splitlines() if line.startswith(("memcheck", "racecheck"))]
    assert done.returncode == 0 and len(lines) == 2 and all("LEFT OUT" in line for line in lines), done.stdout


def test_what_there_is_no_part_for(check: Check) -> None:
    """A name that means nothing is said, and fails."""
    done = check("first", "no-such-part")
    assert done.returncode == 1 and "no part called no-such-part" in done.stdout


def test_the_librarys_tests_launch_on_the_gpu(run: Callable[..., str]) -> None:
    """They name the CPU; with the plugin most of them launch on ``cuda:0`` all the same: here, of one in twenty."""
    said = run(
        f"""
import os, pytest
faulthandler.cancel_dump_traceback_later()
os.environ["AIODEV_TESTS_BEGUN"] = os.devnull
os.chdir({str(ROOT)!r})
found = "tests/kernels/test_elementwise.py"
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", {str(ROOT)!r},
                      "--import-mode=importlib", "-p", "on_gpu", "--exhaustive", found]))
""",
        ON_GPU_SHARE="0/20",
    )
    (counted,) = re.findall(r"([0-9]+) launches on cuda:0, by ([0-9]+) of ([0-9]+) tests", said)
    launches, launching, passed = map(int, counted)
    assert passed >= 20 and launching >= 0.7 * passed and launches >= launching, said


def test_a_dry_run_leaves_out_what_the_stand_in_cannot_show() -> None:
    """Its streams have one priority, so whether urgent work overtakes is not asked there."""
    command = [sys.executable, "tests/cuda/dry.py", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-c", os.devnull]
    command += ["--rootdir", str(ROOT), "--import-mode=importlib", "--exhaustive", "tests/cuda/test_device.py"]
    found = os.environ | {"PYTHONPATH": search_path(ROOT / "tests" / "cuda")}
    done = subprocess.run([*command, "-k", "urgent_work"], capture_output=True, text=True, cwd=ROOT, env=found, timeout=120)
    assert done.returncode == 0 and "there is one priority" in done.stdout, done.stdout + done.stderr

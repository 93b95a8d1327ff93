"""Settings: what the environment may say, and what happens when it says something else."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from aiodev._core.config import Settings
from aiodev._core.usable_cores import Spin


def test_an_empty_environment_gives_the_defaults() -> None:
    """Without variables, and with empty ones, every setting has its default."""
    empty = {setting.metadata["name"]: "" for setting in fields(Settings)}
    assert Settings.from_environment({}) == Settings.from_environment(empty) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("AIODEV_EXECUTOR", "python", "executor", "python"),
        ("AIODEV_EXECUTOR", "native", "executor", "native"),
        ("AIODEV_CPU_DEVICES", "4", "cpu_devices", 4),
        ("AIODEV_CPU_THREADS", "3", "cpu_threads", 3),
        ("AIODEV_SPIN_US", "0", "spin_us", 0),
        ("AIODEV_SPIN_US", "auto", "spin_us", None),
        ("AIODEV_CALL_THREADS", "0012", "call_threads", 12),
        ("AIODEV_WORKER_SPIN_US", " 75 ", "worker_spin_us", 75),
        ("AIODEV_CUDA_SPIN_US", "20", "cuda_spin_us", 20),
        ("AIODEV_CUDA_SPIN_US", "auto", "cuda_spin_us", None),
        ("AIODEV_CACHE_DIR", "/somewhere/else", "cache_dir", "/somewhere/else"),
        ("AIODEV_SLICE_US", "00", "slice_us", 0),
        ("AIODEV_SLICE_US", "100", "slice_us", 100),
    ],
)
def test_a_variable_sets_its_field(name: str, text: str, field: str, value: object) -> None:
    """Each variable sets one field and leaves the others alone."""
    assert Settings.from_environment({name: text}) == Settings(**{field: value})


def test_spinning_is_ours_to_judge_or_stated() -> None:
    """Without variables threads spin as the usable cores allow; with them, as long as they say, wherever."""
    auto, stated = Settings(), Settings(spin_us=7, worker_spin_us=0, cuda_spin_us=3)
    assert [auto.spin_ns(spin) for spin in Spin] == [0, 10_000, 50_000]
    assert [auto.worker_spin_ns(spin) for spin in Spin] == [0, 20_000, 200_000]
    assert [auto.cuda_spin_ns(spin) for spin in Spin] == [0, 20_000, 200_000]
    limits = [(stated.spin_ns(spin), stated.worker_spin_ns(spin), stated.cuda_spin_ns(spin)) for spin in Spin]
    assert limits == 3 * [(7_000, 0, 3_000)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("AIODEV_EXECUTOR", "gpu"),
        ("AIODEV_CPU_DEVICES", "0"),
        ("AIODEV_CPU_DEVICES", "two"),
        ("AIODEV_CPU_THREADS", "-1"),
        ("AIODEV_SPIN_US", "1.5"),
        ("AIODEV_CPU_DEVICES", "99999999999"),
        ("AIODEV_CPU_THREADS", str(1 << 63)),
        ("AIODEV_SPIN_US", "9" * 5000),
        ("AIODEV_WORKER_SPIN_US", str(1 << 64)),
        ("AIODEV_CALL_THREADS", "0"),
        ("AIODEV_WORKER_SPIN_US", "²"),
        ("AIODEV_SLICE_US", "50"),
        ("AIODEV_SLICE_US", "-0"),
    ],
)
def test_a_bad_value_names_its_variable(name: str, text: str) -> None:
    """What cannot be is refused, with the variable and its value in the message."""
    with pytest.raises(ValueError, match=f"{name}='{text}' in the environment: expected"):
        Settings.from_environment({name: text})


def test_misspelt_settings() -> None:
    """The nearest one is named; what is like none may be anybody's."""
    environment = {"AIODEV_CACHEDIR": "", "AIODEV_CPU_THREAD": "", "AIODEV_debug": "", "AIODEV_SLICE_US": "", "PATH": ""}
    found = {"AIODEV_CACHEDIR": "AIODEV_CACHE_DIR", "AIODEV_CPU_THREAD": "AIODEV_CPU_THREADS", "AIODEV_debug": "AIODEV_DEBUG"}
    assert Settings.misspelt(environment) == found
    assert Settings.misspelt({"AIODEV_HOME": "", "AIODEV_TESTS_LIMIT": "", "AIODEV_": "", "CACHE_DIR": ""}) == {}


def test_a_start_warns_of_misspelt_settings() -> None:
    """Once; the processes that compile do not repeat it."""
    program = """
import aiodev

@aiodev.kernel
def odd(i, x):
    x[i] = 8.625

for _ in range(2):
    odd[1](aiodev.zeros(1, device="cpu")).synchronize_blocking(60)
"""
    environment = os.environ | {"AIODEV_COMPILER_STRAT": "early", "AIODEV_COMPILER_START": "early"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr == "AIODEV_COMPILER_STRAT is in the environment, and no setting; AIODEV_COMPILER_START is one\n"


def test_the_cache_is_where_the_platform_keeps_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG's variable is followed on Linux."""
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert Settings().cache_dir == "/caches/aiodev"


def test_a_user_without_a_home_has_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's nameless user gets one among the temporary files."""

    def home() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", home)
    assert "aiodev-" in Settings().cache_dir


def test_a_relative_cache_stays_where_it_was() -> None:
    """A relative directory is fixed when it is read, not when it is used."""
    assert Settings.from_environment({"AIODEV_CACHE_DIR": "here"}).cache_dir == str(Path.cwd() / "here")


def test_settings_do_not_change() -> None:
    """They are read once."""
    with pytest.raises(FrozenInstanceError):
        Settings().executor = "python"


def test_every_setting_says_what_it_is() -> None:
    """The docs and ``python -m aiodev info`` list names and meanings from the fields."""
    for setting in fields(Settings):
        assert setting.metadata["name"] == f"AIODEV_{setting.name.upper()}"
        assert setting.metadata["doc"].endswith(".")

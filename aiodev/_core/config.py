"""Settings from the environment, read once; ``python -m aiodev info`` and the docs list them from here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from aiodev._core.usable_cores import Spin

__all__ = ["Settings", "settings"]

T = TypeVar("T")


def _cache_directory() -> str:
    try:
        home = Path.home()
    except RuntimeError:  # a container's user without a name or a HOME
        from tempfile import gettempdir  # costly to import, and hardly ever needed

        return str(Path(gettempdir()) / f"aiodev-{os.geteuid() if hasattr(os, 'geteuid') else 'cache'}")
    if sys.platform == "darwin":
        return str(home / "Library" / "Caches" / "aiodev")
    if sys.platform == "win32":
        return str(Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "aiodev" / "Cache")
    stated = Path(os.environ.get("XDG_CACHE_HOME", ""))  # which counts where it is absolute, as its specification has it
    return str((stated if stated.is_absolute() else home / ".cache") / "aiodev")


_PREFIX = "AIODEV_"
_LONGEST_SPIN_US = 1_000_000_000
#: How long waits and idle workers spin (µs) where that is left to us. The short ones are about what it costs them to sleep and
#: be woken: on two cores an awaited empty kernel takes 2 µs of CPU time with either, and 6 without; one of 60 µs every 160 µs
#: takes 94 µs with the full ones, 75 with the short ones, 70 without.
_SPIN_US = {Spin.NONE: 0, Spin.SHORT: 10, Spin.FULL: 50}
_WORKER_SPIN_US = {Spin.NONE: 0, Spin.SHORT: 20, Spin.FULL: 200}


def _choice(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return text

    return parse


def _integer(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        digits = text.lstrip("0") or "0"  # so many of them are no number that anybody means, and int() takes long
        if not (text.isascii() and text.isdigit()) or len(digits) > len(str(most)) or not least <= int(digits) <= most:
            raise ValueError(f"an integer from {least} to {most:,}")
        return int(digits)

    return parse


def _or_none(least: int, most: int) -> Callable[[str], int]:
    """An integer, or 0 for none of what it counts."""

    def parse(text: str) -> int:
        try:
            return 0 if text.isascii() and text.isdigit() and not text.strip("0") else _integer(least, most)(text)
        except ValueError as error:
            raise ValueError(f"0, or {error}") from None

    return parse


def _or_auto(parse: Callable[[str], int]) -> Callable[[str], int | None]:
    def parse_or_auto(text: str) -> int | None:
        try:
            return None if text == "auto" else parse(text)
        except ValueError as error:
            raise ValueError(f"auto, or {error}") from None

    return parse_or_auto


def _directory(text: str) -> str:
    try:
        return str(Path(text).expanduser().absolute())
    except RuntimeError:
        raise ValueError("a directory; whose home ~ means is not known here") from None


def _fraction(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError("a number from 0 to 1")
    return value


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("0 or 1")
    return text == "1"


def _setting(name: str, default: Callable[[], T], parse: Callable[[str], T], doc: str) -> Any:
    return field(default_factory=default, metadata={"name": name, "parse": parse, "doc": doc})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment says, or its defaults.

    Each field's metadata has the variable's ``name``, its parser ``parse`` and its ``doc``.
    """

    executor: str = _setting(
        "AIODEV_EXECUTOR",
        lambda: "auto",
        _choice("auto", "native", "python"),
        "How the CPU device runs work: ``native`` workers, plain ``python`` threads, or whichever can run here.",
    )
    cpu_devices: int = _setting(
        "AIODEV_CPU_DEVICES",
        lambda: 1,
        _integer(1, 1024),
        "Into how many CPU devices the machine is split.",
    )
    cpu_threads: int = _setting(
        "AIODEV_CPU_THREADS",
        lambda: 0,
        _integer(0, 1 << 16),
        "Workers of all CPU devices together; 0 for one for each core that the process may use: of its affinity, and of its "
        "control groups' quotas, rounded up. In that case each device has four more, for times when other processes crowd the "
        "machine.",
    )
    spin_us: int | None = _setting(
        "AIODEV_SPIN_US",
        lambda: None,
        _or_auto(_integer(0, _LONGEST_SPIN_US)),
        "How long, in µs, a wait may spin, or twice as long where it helps meanwhile, before it parks; 0 never spins or helps. "
        f"``auto``: {_SPIN_US[Spin.FULL]}; {_SPIN_US[Spin.SHORT]} while a CPU quota leaves no two whole cores, or has just "
        "held the process up; none on a single core, where who waits helps all the same.",
    )
    worker_spin_us: int | None = _setting(
        "AIODEV_WORKER_SPIN_US",
        lambda: None,
        _or_auto(_integer(0, _LONGEST_SPIN_US)),
        "How long, in µs, an idle worker of the CPU may look for work before it sleeps; 0 sleeps at once. "
        f"``auto``: {_WORKER_SPIN_US[Spin.FULL]}; {_WORKER_SPIN_US[Spin.SHORT]} and 0 as for ``AIODEV_SPIN_US``.",
    )
    slice_us: int = _setting(
        "AIODEV_SLICE_US",
        lambda: 100,
        _or_none(100, 100_000),
        "The time slices, in µs, that threads whose event loop waits for devices, and workers of the CPU, ask Linux for, from "
        "6.12 on: where others want the cores as well, shorter ones come sooner and more often. 100 at least; 0 asks for none.",
    )
    call_threads: int = _setting(
        "AIODEV_CALL_THREADS",
        lambda: 1024,
        _integer(1, 1 << 20),
        "How many functions of ``Stream.call`` and callbacks run at once, each in a thread; others wait in line. One that "
        "waits for a stream meanwhile does not count.",
    )
    cuda_wait: str = _setting(
        "AIODEV_CUDA_WAIT",
        lambda: "poll",
        _choice("poll", "callback", "event"),
        "How completed work of CUDA devices is noticed: ``poll``, by a thread that looks; ``callback``, by the driver, which "
        "calls; or ``event``, by threads that wait in the driver.",
    )
    cuda_spin_us: int | None = _setting(
        "AIODEV_CUDA_SPIN_US",
        lambda: None,
        _or_auto(_integer(0, _LONGEST_SPIN_US)),
        "How long, in µs, the thread that looks for completed work of a CUDA device does so without a pause; 0 pauses at once. "
        "``auto``: as for ``AIODEV_WORKER_SPIN_US``.",
    )
    cache_dir: str = _setting(
        "AIODEV_CACHE_DIR",
        _cache_directory,
        _directory,
        "Where compiled code is kept: a directory of this user's alone; a temporary one takes the place of any other.",
    )
    compiler_start: str = _setting(
        "AIODEV_COMPILER_START",
        lambda: "auto",
        _choice("auto", "early", "late"),
        "When the first compile worker starts, a process of 150 MB that first imports a compiler for a second: ``early``: "
        "with the device; ``late``: for the first kernel that is to be compiled; ``auto``: early if no code is kept anywhere.",
    )
    prebuilt_dir: str = _setting(
        "AIODEV_PREBUILT_DIR",
        str,
        _directory,
        "Where ``python -m aiodev warm-up --into`` has put kernels that were compiled ahead; they are taken if only this user "
        "and root can put code there.",
    )

    memory_gc_threshold: float = _setting(
        "AIODEV_MEMORY_GC_THRESHOLD",
        lambda: 0.0,
        _fraction,
        "Which part of a device's memory may be reserved before cached memory is given back to make room; 0 for all of it.",
    )
    top: bool = _setting(
        "AIODEV_TOP",
        lambda: False,
        _switch,
        "1: let ``python -m aiodev top`` of the same user look at the process, from when its first device starts; see "
        "``aiodev.profiler.serve_top``.",
    )
    debug: bool = _setting(
        "AIODEV_DEBUG",
        lambda: False,
        _switch,
        "1: check the indices of every kernel; find wrong writes and races between streams, where the host can touch a "
        "device's memory, and host arrays that change before a copy has read them, and log them; warn of waits that block a "
        "thread whose event loop runs.",
    )

    def spin_ns(self, spin: Spin) -> int:
        """How long a wait may spin, where the setting leaves that to ``spin``."""
        return 1000 * (_SPIN_US[spin] if self.spin_us is None else self.spin_us)

    def worker_spin_ns(self, spin: Spin) -> int:
        """How long an idle worker of the CPU may."""
        return 1000 * (_WORKER_SPIN_US[spin] if self.worker_spin_us is None else self.worker_spin_us)

    def cuda_spin_ns(self, spin: Spin) -> int:
        """How long the thread that looks for completed work of a CUDA device may look without a pause."""
        return 1000 * (_WORKER_SPIN_US[spin] if self.cuda_spin_us is None else self.cuda_spin_us)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Read the settings; a variable that is empty counts as not set.

        Raises:
            ValueError: a variable has a value that it cannot have; the message names both.
        """
        values: dict[str, Any] = {}
        for setting in fields(cls):
            name = setting.metadata["name"]
            text = environment.get(name, "").strip()
            if not text:
                continue
            try:
                values[setting.name] = setting.metadata["parse"](text)
            except ValueError as error:
                raise ValueError(f"{name}={text!r} in the environment: expected {error}") from None
        return cls(**values)


    @classmethod
    def misspelt(cls, environment: Mapping[str, str]) -> dict[str, str]:
        """Variables that are nearly named as a setting is, and the name of that; others of the prefix may be anybody's."""
        names = [setting.metadata["name"].removeprefix(_PREFIX) for setting in fields(cls)]
        found = {}
        for name in environment:
            rest = name.removeprefix(_PREFIX)
            if rest != name and rest not in names:
                from difflib import get_close_matches  # costly to import, and hardly ever needed

                near = get_close_matches(rest.upper(), names, n=1, cutoff=0.7)
                if near:
                    found[name] = _PREFIX + near[0]
        return found


#: The settings of this process.
settings = Settings.from_environment(os.environ)

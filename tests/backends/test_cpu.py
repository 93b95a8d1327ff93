"""The CPU backend: which executor it takes and why, how it splits the machine, and its memory."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aiodev._backends.cpu import CPUBackend, backend as cpu_backend, properties
from aiodev._backends.cpu.executor.crowding import ALWAYS
from aiodev._backends.cpu.host import HostBackend
from aiodev._backends.cpu.memory import GRANULARITY, HUGE_PAGE, HostMemory
from aiodev._backends.cpu.properties import available_memory, cores_of, total_memory
from aiodev._backends.cpu.structs import Device
from aiodev._backends.cpu.tuning import HUGE_FROM
from aiodev._core import usable_cores
from aiodev._core.config import Settings
from aiodev._core.errors import BackendUnavailableError
from aiodev._core.usable_cores import CoreWatch, Quota, UsableCores, allowed_cores


def _cpu(**environment: str) -> CPUBackend:
    return CPUBackend(Settings.from_environment(environment))


def test_python_executor_on_request() -> None:
    """AIODEV_EXECUTOR=python takes plain threads and says so."""
    backend = _cpu(AIODEV_EXECUTOR="python")
    assert (backend.executor_kind, backend.executor_reason) == ("python", "AIODEV_EXECUTOR=python")
    backend.start()
    assert backend.executor.kind == "python"
    backend.stop()


@pytest.mark.parametrize(
    ("obstacle", "word"),
    [(("platform", "darwin"), "darwin"), (("machine", "riscv64"), "riscv64"), (("jit", "1"), "NUMBA_DISABLE_JIT")],
)
def test_native_executor_only_where_it_runs(
    monkeypatch: pytest.MonkeyPatch, obstacle: tuple[str, str], word: str
) -> None:
    """Where native code cannot run, auto takes plain threads and names the reason; asking for native raises it."""
    what, value = obstacle
    if what == "platform":
        monkeypatch.setattr(cpu_backend.sys, "platform", value)
    elif what == "machine":
        monkeypatch.setattr(cpu_backend.platform, "machine", lambda: value)
    else:
        monkeypatch.setenv("NUMBA_DISABLE_JIT", value)
    backend = _cpu()
    assert backend.executor_kind == "python" and word in backend.executor_reason
    with pytest.raises(BackendUnavailableError, match=word):
        _cpu(AIODEV_EXECUTOR="native")


@pytest.mark.parametrize("broken", ["the cache", "the compiler", "its threads"])
def test_auto_takes_plain_threads_where_native_code_fails_to_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    """Whatever fails; one warning tells why. Who asked for the native executor gets the error."""
    if _cpu().executor_kind != "native":
        pytest.skip("native code does not run here")

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(f"{broken} failed")

    if broken == "the cache":
        from aiodev._backends.cpu.compile import kernel_code

        monkeypatch.setattr(kernel_code, "target", fail)
    elif broken == "the compiler":
        monkeypatch.setattr(cpu_backend, "load_llvm", fail)
    else:
        from aiodev._backends.cpu.executor.executor import NativeExecutor

        monkeypatch.setattr(NativeExecutor, "_start_device", fail)
    with pytest.raises(BackendUnavailableError, match=f"AIODEV_EXECUTOR=native, but OSError: {broken} failed"):
        _cpu(AIODEV_EXECUTOR="native").start()
    assert not caplog.records
    backend = _cpu()
    backend.start()
    try:
        assert backend.executor.kind == backend.executor_kind == "python"
        assert f"{broken} failed" in backend.executor_reason
        (record,) = caplog.records
        assert f"{broken} failed" in record.getMessage() and "AIODEV_EXECUTOR=python" in record.getMessage()
    finally:
        backend.stop()


def test_use_before_start_says_what_to_do() -> None:
    """A backend that was not started raises and says so."""
    backend = _cpu(AIODEV_EXECUTOR="python")
    with pytest.raises(RuntimeError, match="start"):
        backend.executor.create_queue(0, 0, False)
    backend.stop()


def test_importing_and_asking_starts_nothing() -> None:
    """Discovery does not import numba and starts no thread."""
    code = (
        "import sys, threading; from aiodev._backends.cpu import CPUBackend; b = CPUBackend();"
        "b.device_count(), b.device_properties(0), b.unavailable_reason(), b.memory_info(0);"
        "print('numba' in sys.modules, threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "1"]


def test_devices_split_the_cores() -> None:
    """Devices share out the usable cores without overlap; with more devices than cores each has one."""
    cores = allowed_cores()
    for count in range(1, len(cores) + 1):
        shares = [cores_of(i, count) for i in range(count)]
        assert sum(shares, ()) == cores and all(shares)
    many = len(cores) + 3
    assert all(len(cores_of(i, many)) == 1 for i in range(many))


class Quotas:
    """A machine of eight cores whose quota is what a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.usable = UsableCores(8)
        self.watch = CoreWatch(lambda: self.usable)
        monkeypatch.setattr(cpu_backend, "core_watch", self.watch)
        monkeypatch.setattr(properties, "core_watch", self.watch)
        monkeypatch.setattr(properties, "allowed_cores", lambda: tuple(range(8)))

    def allow(self, cores: int) -> None:
        """From now on the affinity is so many cores, and there is no quota."""
        self.usable = UsableCores(cores)
        self.watch.look()

    def set(self, cores: float) -> None:
        """From now on the quota is so many cores."""
        self.usable = UsableCores(8, Quota(cores, "/groups/cpu.max"))
        self.watch.look()


@pytest.fixture
def quotas(monkeypatch: pytest.MonkeyPatch) -> Quotas:
    """A machine of eight cores, and its quota."""
    return Quotas(monkeypatch)


@pytest.mark.parametrize(
    ("cores", "environment", "workers"),
    [
        (0.5, {}, 1),
        (1.5, {}, 2),
        (64.0, {}, 8),
        (3.0, {"AIODEV_CPU_DEVICES": "2"}, 1),
        (1.0, {"AIODEV_CPU_THREADS": "4"}, 4),
    ],
)
def test_as_many_workers_as_a_quota_has_cores(
    cores: float, environment: dict[str, str], workers: int, quotas: Quotas
) -> None:
    """Rounded up, shared out to the devices, unless the environment says how many; the reason is there to be told."""
    quotas.set(cores)
    backend = _cpu(**environment)
    if backend.executor_kind != "native":
        pytest.skip("native code does not run here")
    backend.start()
    try:
        assert backend.executor.thread_count == workers
        asked = "AIODEV_CPU_THREADS=4; " if "AIODEV_CPU_THREADS" in environment else ""
        plural = "" if cores == 1 else "s"
        assert backend.workers_reason == (
            f"{asked}8 cores by affinity, quota of {cores:g} core{plural} in /groups/cpu.max"
        )
    finally:
        backend.stop()


def test_processors_of_a_device_follow_the_quota(quotas: Quotas) -> None:
    """Its properties have as many as are usable now, and the quota; its cores are those of the affinity."""
    backend = _cpu(AIODEV_CPU_DEVICES="2")
    assert [backend.device_properties(0).multi_processor_count, backend.device_properties(0).extra["cpu_quota"]] == [4, None]
    quotas.set(5.5)
    found = backend.device_properties(1)
    assert (found.multi_processor_count, found.extra["cpu_quota"], found.extra["cores"]) == (3, 5.5, (4, 5, 6, 7))
    quotas.set(0.5)
    assert backend.device_properties(1).multi_processor_count == 1


@pytest.mark.parametrize(
    ("environment", "caps"),
    [({}, [200_000, 20_000, 200_000]), ({"AIODEV_WORKER_SPIN_US": "7"}, [7_000, 7_000, 7_000])],
    ids=["auto", "stated"],
)
def test_workers_spin_as_the_quota_allows(environment: dict[str, str], caps: list[int], quotas: Quotas) -> None:
    """Idle workers, also of reserved streams, spin shortly while a quota has no two whole cores, unless told otherwise."""
    backend = _cpu(**environment)
    if backend.executor_kind != "native":
        pytest.skip("native code does not run here")
    backend.start()
    try:
        executor: Any = backend.executor
        executor.create_queue(0, 0, True)
        seen = []
        for cores in (8.0, 1.5, 8.0):
            quotas.set(cores)
            (cap,) = {worker.spin_cap for worker in executor._workers}
            seen.append(cap)
        assert seen == caps
    finally:
        backend.stop()


def test_a_single_core_is_crowded_for_as_long_as_it_is_the_only_one(quotas: Quotas) -> None:
    """Whatever threads see meanwhile; what they learnt of a crowd of others stays when nothing changes."""
    backend = _cpu()
    if backend.executor_kind != "native":
        pytest.skip("native code does not run here")
    backend.start()
    try:
        crowd = backend.executor._crowd  # type: ignore[attr-defined]
        for _ in range(2):
            quotas.allow(1)
            assert (crowd.until.value, crowd.span) == (ALWAYS, -1)
            quotas.allow(8)
            assert (crowd.until.value, crowd.span) == (0, 0)
        crowd.until.value, crowd.span = ALWAYS - 1, 7
        quotas.allow(4)
        assert (crowd.until.value, crowd.span) == (ALWAYS - 1, 7)
    finally:
        backend.stop()


@pytest.mark.parametrize(
    ("environment", "limits"),
    [({}, [8, 1, 2, 8, 8]), ({"AIODEV_CPU_DEVICES": "2"}, [4, 1, 1, 4, 4]), ({"AIODEV_CPU_THREADS": "4"}, [4] * 5)],
)
def test_workers_beyond_a_quota_rest(
    environment: dict[str, str], limits: list[int], quotas: Quotas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the file of the control group has it, which a watch reads; unless the environment says how many there are."""
    group, own = tmp_path / "sys" / "fs" / "cgroup", tmp_path / "proc" / "self"
    for directory in (group, own):
        directory.mkdir(parents=True)
    (own / "cgroup").write_text("0::/\n")
    (own / "mountinfo").write_text("25 30 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    monkeypatch.setattr(usable_cores, "allowed_cores", lambda: tuple(range(8)))
    watch = CoreWatch(lambda: usable_cores.usable_cores(tmp_path))
    monkeypatch.setattr(cpu_backend, "core_watch", watch)
    backend = _cpu(**environment)
    if backend.executor_kind != "native":
        pytest.skip("native code does not run here")
    backend.start()
    try:
        executor: Any = backend.executor
        found = []
        for text in ("max 100000", "50000 100000", "150000 100000", "6400000 100000", "max 100000"):
            (group / "cpu.max").write_text(text)
            watch.look()
            (awake,) = {device.workers - device.surplus for device in map(Device, executor._devices)}
            found.append(awake)
        assert found == limits
    finally:
        backend.stop()


def test_devices_split_the_memory() -> None:
    """Devices share out the machine's memory, and each has its properties."""
    backend = _cpu(AIODEV_CPU_DEVICES="3")
    assert backend.device_count() == 3
    for index in range(3):
        properties = backend.device_properties(index)
        assert (properties.index, properties.total_memory) == (index, total_memory() // 3)
        assert properties.extra["cores"] == cores_of(index, 3)
        assert properties.capability[0] in (16, 32, 64)


def test_memory_figures_are_consistent() -> None:
    """What is available is within the total."""
    assert 0 < available_memory() <= total_memory()


def test_memory_is_zeroed_aligned_and_counted() -> None:
    """Fresh memory is zero, large memory starts at a huge page, and the counts follow."""
    memory = HostMemory(1 << 30)
    small, large = memory.allocate(1000), memory.allocate(HUGE_FROM + 1)
    assert small % 256 == 0 and large % HUGE_PAGE == 0
    assert ctypes.string_at(large + HUGE_FROM - 15, 16) == bytes(16)
    ctypes.memset(large, 1, HUGE_FROM + 1)
    assert memory.allocated == 1000 + HUGE_FROM + 1
    memory.deallocate(small)
    memory.deallocate(large)
    assert memory.allocated == 0


def test_memory_beyond_the_device_is_refused() -> None:
    """The device's total binds, however much the system would promise."""
    memory = HostMemory(1 << 20)
    kept = memory.allocate(1 << 19)
    with pytest.raises(MemoryError):
        memory.allocate((1 << 19) + 1)
    memory.deallocate(kept)
    memory.deallocate(memory.allocate(1 << 20))


@pytest.mark.skipif(not GRANULARITY, reason="no ranges on this system")
def test_memory_comes_and_goes_in_a_range() -> None:
    """Any whole granules of a range can be memory, fresh each time; what is there counts, addresses alone do not."""
    memory = HostMemory(1 << 30)
    start = memory.reserve(1 << 36)
    assert start % GRANULARITY == 0 and memory.allocated == 0
    memory.map(start, GRANULARITY)
    memory.map(start + GRANULARITY, 3 * GRANULARITY)
    ctypes.memset(start, 7, 4 * GRANULARITY)
    memory.unmap(start + GRANULARITY, GRANULARITY)
    assert memory.allocated == 3 * GRANULARITY
    memory.map(start + GRANULARITY, GRANULARITY)
    assert ctypes.string_at(start + GRANULARITY - 1, 2) == b"\x07\x00"
    assert ctypes.string_at(start + 2 * GRANULARITY - 1, 2) == b"\x00\x07"
    with pytest.raises(MemoryError):
        memory.map(start + 4 * GRANULARITY, 1 << 30)
    memory.unmap(start, 4 * GRANULARITY)
    assert memory.allocated == 0
    memory.release(start, 1 << 36)


def test_addresses_that_the_system_does_not_have_are_refused() -> None:
    """As memory that it does not have."""
    if not GRANULARITY:
        pytest.skip("no ranges on this system")
    with pytest.raises(MemoryError, match="refused mmap"):
        HostMemory(1 << 30).reserve(1 << 62)


@pytest.mark.skipif(not GRANULARITY, reason="no ranges on this system")
@pytest.mark.parametrize("nbytes", [1 << 63, 1 << 64, (1 << 64) + HUGE_PAGE, 1 << 83, -1, 0])
def test_a_range_of_no_size_of_the_system_is_refused(nbytes: int) -> None:
    """It is not cut down to 64 bits, with which other memory of the process would be unmapped."""
    with pytest.raises(MemoryError, match="range"):
        HostMemory(1 << 30).reserve(nbytes)


def test_deallocating_twice_is_an_error() -> None:
    """An address can be given back once."""
    memory = HostMemory(1 << 20)
    address = memory.allocate(1)
    memory.deallocate(address)
    with pytest.raises(KeyError):
        memory.deallocate(address)


def test_stop_ends_the_threads_and_may_be_repeated(cpu: HostBackend) -> None:
    """A backend of its own can be started, stopped, and stopped again without a trace."""
    backend = _cpu(AIODEV_EXECUTOR=cpu.executor.kind)
    backend.start()
    queue, counters = backend.executor.create_queue(0, 0, False)
    assert backend.executor.spin(queue, backend.executor.fill(queue, 0, 0, b"x"), 10**10)
    assert counters[0] == 1
    backend.stop()
    backend.stop()


def test_kernels_are_interpreted_without_a_compiler() -> None:
    """With NUMBA_DISABLE_JIT=1 the rules about kernels hold all the same."""
    code = (
        "from aiodev._backends.cpu import CPUBackend; from aiodev.testing import check_backend; b = CPUBackend();"
        "b.start(); print(b.executor.kind, b.executor_reason);"
        "check_backend(b, rules=['empty_launches_complete', 'a_kernels_exception_is_its_fault']); b.stop()"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "AIODEV_EXECUTOR": "auto"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("python NUMBA_DISABLE_JIT")

"""What can be known of backends and devices before anything starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import pytest

import aiodev
from aiodev import BackendNotFoundError, BackendUnavailableError, Device, InvalidDeviceError
from aiodev._core.backend.registry import Registry, registry

AddBackend = Callable[..., Any]


def unreachable() -> Any:
    raise ImportError("no driver")


def test_accelerators_come_before_the_cpu(add_backend: AddBackend) -> None:
    """Best first: accelerators in order of registration, then the CPU; what cannot start is left out."""
    for name in ("cpu", "second", "absent", "first"):
        add_backend(name, reason="no device" if name == "absent" else None)
    assert registry.names() == ("second", "absent", "first", "cpu")
    assert aiodev.available_backends() == ("second", "first", "cpu")


def test_the_built_in_backend_is_known_without_looking() -> None:
    """The CPU is found without a search through the installed distributions; others are searched for once."""
    searches = []

    def discover() -> list[EntryPoint]:
        searches.append(1)
        return [EntryPoint("cpu", "nowhere:other", "group"), EntryPoint("extra", "nowhere:extra", "group")]

    found = Registry([EntryPoint("cpu", "builtins:dict", "group")], discover)
    assert found.handle("cpu").backend == {} and not searches
    assert found.names() == ("extra", "cpu")
    with pytest.raises(BackendNotFoundError):
        found.handle("other")
    assert len(searches) == 1
    assert found.handle("cpu").backend == {}, "an installed entry point has taken the place of the built-in one"


def test_broken_metadata_does_not_hide_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    """When the search for entry points fails, it is reported and what is known stays usable."""

    def discover() -> list[EntryPoint]:
        raise OSError("unreadable")

    found = Registry([EntryPoint("cpu", "builtins:dict", "group")], discover)
    assert found.names() == ("cpu",)
    assert "unreadable" in caplog.text


def test_unknown_names_are_told_with_the_known_ones(add_backend: AddBackend) -> None:
    """A type that nobody registered raises, wherever it is named, and the message lists what there is."""
    add_backend("cpu")
    add_backend("fake")
    for ask in (aiodev.get_backend, aiodev.device_count, aiodev.is_initialized, aiodev.set_device, aiodev.device):
        with pytest.raises(BackendNotFoundError, match=r"'fpga' \(registered: fake, cpu\)") as caught:
            ask("fpga")
        assert isinstance(caught.value, LookupError)
        assert (caught.value.name, caught.value.known) == ("fpga", ("fake", "cpu"))
    assert not aiodev.is_available("fpga")


def test_asking_what_is_available_never_raises(add_backend: AddBackend) -> None:
    """Factories and backends that raise are unavailable; the reason says what they raised."""
    broken = add_backend("broken")
    broken.unavailable_reason = broken.device_count = lambda: 1 // 0
    add_backend("empty", devices=0)
    registry.register("missing", unreachable)
    assert aiodev.available_backends() == ()
    assert [aiodev.device_count(name) for name in registry.names()] == [0, 0, 0]
    reasons = [registry.handle(name).unavailable_reason() for name in registry.names()]
    assert reasons[0] is not None and reasons[0].startswith("ZeroDivisionError")
    assert reasons[1:] == ["it has no devices", "ImportError: no driver"]


def test_asking_starts_nothing(add_backend: AddBackend) -> None:
    """Counting, resolving and entering a guard leave every backend as it was."""
    backend = add_backend()
    assert aiodev.available_backends() == ("fake",)
    assert aiodev.is_available("fake") and aiodev.device_count() == aiodev.device_count("fake") == 2
    with aiodev.device("fake:1"):
        aiodev.set_device(0)
        assert aiodev.current_device() == Device("fake", 0)
    assert aiodev.get_backend("fake") is backend
    assert not aiodev.is_initialized("fake") and not backend.start_threads


def test_importing_starts_nothing() -> None:
    """Counting devices in a fresh process makes no thread and loads no compiler."""
    program = (
        "import sys\n"
        "before = set(sys.modules)  # other packages may import theirs when Python starts\n"
        "import aiodev, threading\n"
        "assert aiodev.device_count('cpu') >= 1 and 'cpu' in aiodev.available_backends()\n"
        "assert not {'numba', 'llvmlite', 'cuda'} & (sys.modules.keys() - before)\n"
        "assert threading.active_count() == 1\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("spelling", ["fake:1", 1, Device("fake", 1)])
def test_devices_are_resolved(add_backend: AddBackend, spelling: aiodev.DeviceLike) -> None:
    """A string, an index on the default type and a device mean the same, before the start and after it."""
    add_backend("cpu")
    add_backend("fake")
    assert registry.resolve(spelling) == (registry.handle("fake"), Device("fake", 1))
    aiodev.init_blocking("fake")
    for _ in range(2):
        assert registry.resolve(spelling) == (registry.handle("fake"), Device("fake", 1))


def test_the_default_device_is_the_best(add_backend: AddBackend) -> None:
    """None means the current device; that is the best one where none was chosen."""
    cpu, fake = add_backend("cpu"), add_backend("fake")
    assert registry.resolve()[1] == aiodev.current_device() == Device("fake", 0)
    fake.reason = "unplugged"
    assert aiodev.current_device() == Device("cpu", 0)
    with aiodev.device("cpu:1"):
        assert registry.resolve(None) == (registry.handle("cpu"), Device("cpu", 1))
    cpu.reason = "gone too"
    with pytest.raises(BackendUnavailableError, match="no backend can start here"):
        aiodev.current_device()


def test_a_new_backend_may_become_the_default(add_backend: AddBackend) -> None:
    """What was resolved is forgotten when a backend is registered."""
    add_backend("cpu")
    aiodev.init_blocking("cpu")
    assert registry.resolve(0)[1] == aiodev.current_device() == Device("cpu", 0)
    add_backend("fake")
    assert registry.resolve(0)[1] == aiodev.current_device() == Device("fake", 0)


def test_work_settles_the_default(add_backend: AddBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever needs a stream of the default device has it looked up once; only a registration has it looked up anew."""
    add_backend("fake")
    looks: list[str] = []
    available = type(registry).available
    monkeypatch.setattr(type(registry), "available", lambda self: looks.append("") or available(self))
    assert [registry.resolve_default()[1] for _ in range(2)] == 2 * [Device("fake")] and len(looks) == 2
    assert registry.settle_default() is registry.settle_default() is registry.resolve_default() and len(looks) == 3
    add_backend("other")
    assert registry.settle_default()[1] in (Device("fake"), Device("other")) and len(looks) == 4


@pytest.mark.parametrize("asked", ["fake:2", 2, Device("fake", 7)])
def test_an_index_out_of_range_is_told(add_backend: AddBackend, asked: aiodev.DeviceLike) -> None:
    """A device that is not there raises, and the message says which are."""
    add_backend("fake")
    with pytest.raises(InvalidDeviceError, match="is not a device here: this machine has fake:0 to fake:1"):
        registry.resolve(asked)


def test_other_things_are_no_devices(add_backend: AddBackend) -> None:
    """An index below zero is invalid; what is no name and no index is a type error."""
    add_backend("fake")
    with pytest.raises(InvalidDeviceError):
        registry.resolve(-1)
    for wrong in (1.0, b"fake", object()):
        with pytest.raises(TypeError):
            registry.resolve(wrong)


def test_counts_are_asked_anew_until_the_start(add_backend: AddBackend) -> None:
    """What is visible may change until a backend has started; a device that was resolved before is checked again."""
    backend = add_backend("fake", 2)
    registry.resolve("fake:1")
    backend.devices = 1
    with pytest.raises(InvalidDeviceError, match="this machine has fake:0"):
        registry.resolve("fake:1")


def test_an_unavailable_backend_says_why(add_backend: AddBackend) -> None:
    """Using a device of a backend that cannot start raises with its reason."""
    add_backend("fake", reason="the driver is too old")
    with pytest.raises(BackendUnavailableError, match="the driver is too old") as caught:
        registry.resolve("fake")
    assert caught.value.reason == "the driver is too old"


def test_a_backend_can_be_replaced_until_it_starts(add_backend: AddBackend) -> None:
    """Registering a name again replaces the backend, but not one that runs."""
    add_backend("fake", 1)
    add_backend("fake", 3)
    assert aiodev.device_count("fake") == 3
    aiodev.init_blocking("fake")
    with pytest.raises(ValueError, match="already been started"):
        add_backend("fake")


@pytest.mark.parametrize("name", ["fake:0", "two words", ""])
def test_a_backend_has_a_name_that_a_device_can_have(empty_registry: Registry, name: str) -> None:
    """What no device string could spell cannot be registered."""
    with pytest.raises(ValueError):
        aiodev.register_backend(name, unreachable)


def test_get_backend_takes_any_device(add_backend: AddBackend) -> None:
    """The instance is made once, whatever names it; one that cannot be made says why."""
    backend = add_backend("fake")
    for device in ("fake", "fake:1", Device("fake"), 0):
        assert aiodev.get_backend(device) is backend
    registry.register("missing", unreachable)
    with pytest.raises(BackendUnavailableError, match="ImportError: no driver") as caught:
        aiodev.get_backend("missing")
    assert isinstance(caught.value.__cause__, ImportError)


def test_properties_are_those_of_the_device(add_backend: AddBackend) -> None:
    """Name, capability and properties are the backend's for that index, by default for the current device."""
    add_backend("fake")
    assert aiodev.get_device_properties("fake:1").index == 1
    assert aiodev.get_device_name("fake:1") == "Fake 1"
    with aiodev.device(1):
        assert aiodev.get_device_capability() == (9, 1)


def test_stopping_goes_on_past_a_failure(add_backend: AddBackend, caplog: pytest.LogCaptureFixture) -> None:
    """At exit every backend that runs is stopped, and only those; one that fails to is reported."""
    first, idle, last = add_backend("first"), add_backend("idle"), add_backend("last")
    first.stop = lambda: 1 // 0
    aiodev.init_blocking("first")
    aiodev.init_blocking("last")
    registry.stop()
    assert (idle.stopped, last.stopped) == (0, 1)
    assert "backend 'first' did not stop" in caplog.text

"""Devices are values."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from aiodev import Device, InvalidDeviceError


class Index:
    """What NumPy's integers are: an index, and not an int."""

    def __index__(self) -> int:
        return 1


@pytest.mark.parametrize(
    "device", [Device("cuda:1"), Device("cuda", 1), Device(Device("cuda", 1)), Device("cuda", Index())]
)
def test_one_device_has_many_spellings(device: Device) -> None:
    """However it is spelled, it is equal, hashes alike and has its type and index."""
    assert (device.type, device.index) == ("cuda", 1)
    assert device == Device("cuda", 1) and hash(device) == hash(Device("cuda", 1))


def test_the_index_is_zero_by_default() -> None:
    """``Device("cpu")`` is the first."""
    assert Device("cpu") == Device("cpu", 0) == Device("cpu:0")


@pytest.mark.parametrize("other", [Device("cuda", 0), Device("cpu", 1), "cuda:1", ("cuda", 1), 1, None])
def test_other_things_are_not_equal(other: object) -> None:
    """A device equals devices of its type and index alone, not what may be written for it."""
    assert Device("cuda", 1) != other


def test_texts() -> None:
    """``str`` is what the constructor takes back; ``repr`` names the public class."""
    assert str(Device("cuda", 1)) == "cuda:1"
    assert repr(Device("cuda", 1)) == "aiodev.Device('cuda:1')"


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_it_pickles(protocol: int) -> None:
    """Pickles, and copies, are equal devices; hashes, which differ between processes, do not travel."""
    device = Device("cuda", 1)
    data = pickle.dumps(device, protocol)
    assert pickle.loads(data) == copy.deepcopy(device) == device
    assert str(hash(device)).encode() not in data


@pytest.mark.parametrize("name", ["type", "index", "other"])
def test_it_does_not_change(name: str) -> None:
    """No attribute can be set or deleted."""
    device = Device("cpu")
    with pytest.raises(AttributeError):
        setattr(device, name, 1)
    with pytest.raises(AttributeError):
        delattr(device, name)


def test_it_matches() -> None:
    """A ``match`` statement takes it apart."""
    match Device("cuda:3"):
        case Device("cuda", index):
            assert index == 3
        case _:
            pytest.fail("did not match")


@pytest.mark.parametrize("name", ["", ":", "cpu:", ":1", "cpu:x", "cpu:-1", "cpu:1:2", " cpu", "cpu\n", "1", "cpu:²", "a b"])
def test_malformed_names_are_refused(name: str) -> None:
    """A name that is no device's raises, and is named."""
    with pytest.raises(InvalidDeviceError, match="is not a device here: a device is a type and an index") as caught:
        Device(name)
    assert caught.value.asked == name
    assert isinstance(caught.value, ValueError)


def test_indices_below_zero_are_refused() -> None:
    """Devices are counted from 0."""
    with pytest.raises(InvalidDeviceError, match="'cpu:-1' is not a device here"):
        Device("cpu", -1)


@pytest.mark.parametrize("first", ["cuda:1", Device("cuda", 1)])
def test_an_index_is_given_once(first: Any) -> None:
    """Two indices contradict each other, even when they agree."""
    with pytest.raises(InvalidDeviceError, match="the index is given twice"):
        Device(first, 1)


@pytest.mark.parametrize("arguments", [(None,), (1,), (b"cpu",), ("cpu", "1"), ("cpu", 1.0)])
def test_wrong_types_are_type_errors(arguments: tuple[Any, ...]) -> None:
    """What is not a name and an index is a mistake of the program, not a missing device."""
    with pytest.raises(TypeError):
        Device(*arguments)

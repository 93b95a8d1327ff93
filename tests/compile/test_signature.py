"""Types of a launch: weak scalars, strong ones, and what is refused."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from kernel_fakes import FakeArray

import aiodev
from aiodev import Device, KernelSpec, LaunchError
from aiodev._kernel.analysis.source import analyse
from aiodev._kernel.dispatch.signature import Signature, describe
from aiodev._kernel.dispatch.submission import pack

CPU = Device("cpu")


def signature(body: Any, *args: Any, ndim: int = 1) -> Signature:
    names = body.__code__.co_varnames[ndim : body.__code__.co_argcount]
    return describe(body.__name__, ndim, names, args, CPU, analyse(body, names))


def array(dtype: str, shape: int | tuple[int, ...] = 4) -> FakeArray:
    return FakeArray(np.zeros(shape, dtype))


def saxpy(i: int, a: Any, x: Any, y: Any, out: Any) -> None:
    out[i] = a * x[i] + y[i]


def shifted(i: int, n: Any, x: Any, out: Any) -> None:
    out[i] = x[i + n]


def mixed(i: int, n: Any, x: Any, index: Any, out: Any) -> None:
    out[i] = x[index[i] + n]


def divided(i: int, n: Any, x: Any, out: Any) -> None:
    out[i] = x[i] / n


@pytest.mark.parametrize(
    ("dtype", "value", "code"),
    [
        ("f4", 2.0, "f4"),
        ("f8", 2.0, "f8"),
        ("i4", 2.0, "f8"),
        ("c8", 2.0, "f4"),
        ("f4", 2, "f4"),
        ("i4", 2, "i8"),
        ("u4", 2, "i8"),
        ("u8", 2, "u8"),
        ("f4", True, "b1"),
        ("f4", 2j, "c8"),
        ("f8", 2j, "c16"),
        ("f4", np.float64(2), "f8"),
        ("f8", np.float32(2), "f4"),
        ("f4", np.int16(2), "i2"),
        ("f4", np.bool_(True), "b1"),
    ],
)
def test_python_scalars_are_weak_and_numpy_scalars_strong(dtype: str, value: Any, code: str) -> None:
    """A Python scalar takes the type of the arrays that it meets, within its kind; a NumPy scalar keeps its own."""
    found = signature(saxpy, value, array(dtype), array(dtype), array(dtype))
    assert found.descriptors[0] == code


def test_a_weak_float_follows_what_it_is_combined_with() -> None:
    """The type of the output does not count: float32 times a weak float is a float32, wherever it is stored."""
    assert signature(saxpy, 2.0, array("f4"), array("f4"), array("f8")).descriptors[0] == "f4"
    assert signature(saxpy, 2.0, array("f4"), array("f8"), array("f4")).descriptors[0] == "f8"


@pytest.mark.parametrize("body", [shifted, divided])
def test_an_int_that_may_be_an_index_or_a_divisor_stays_one(body: Any) -> None:
    """So that indexing works, and a division by zero is seen."""
    assert signature(body, 1, array("f4"), array("f4")).descriptors[0] == "i8"


def test_an_int_added_to_an_index_array_stays_one() -> None:
    """It meets elements, but of an integer array."""
    assert signature(mixed, 1, array("f4"), array("i4"), array("f4")).descriptors[0] == "i8"


def test_descriptors_of_arrays() -> None:
    """Dimensions, dtype and layout; ``r`` where it may only be read."""
    strided = FakeArray(np.zeros((4, 4), "f4").T)
    frozen = np.zeros(3, "c16")
    frozen.flags.writeable = False
    found = signature(saxpy, strided, FakeArray(frozen), array("b1", ()), array("u2"))
    assert found.descriptors == ("A2f4A", "A1c16Cr", "A0b1C", "A1u2C")
    assert found.pattern == "RRRA"


def test_block_is_shape_then_scalars() -> None:
    """Every word has eight bytes; a complex scalar has its parts, of its own precision, in one or two words."""
    found = signature(saxpy, 2j, np.int8(-1), np.complex128(1 + 2j), np.float32(0.5))
    assert found.pattern == "ZSZS"
    packed = found.pack(7, *found.numbers((2j, np.int8(-1), np.complex128(1 + 2j), np.float32(0.5))))
    assert packed == struct.pack("<qddb7xddf4x", 7, 0, 2, -1, 1, 2, 0.5)


def test_where_the_body_writes_a_readonly_array_is_refused() -> None:
    """It is named; as an input it is fine."""
    frozen = np.zeros(4, "f4")
    frozen.flags.writeable = False
    signature(saxpy, 1.0, FakeArray(frozen), array("f4"), array("f4"))
    with pytest.raises(LaunchError, match="argument out: expected an array that can be written to") as caught:
        signature(saxpy, 1.0, array("f4"), array("f4"), FakeArray(frozen))
    assert caught.value.argument == "out"


def test_an_array_elsewhere_is_refused() -> None:
    """The message says where it should be and where it is."""
    with pytest.raises(LaunchError, match=r"saxpy: argument y: expected an array on cpu:0, got cpu:1"):
        signature(saxpy, 1.0, array("f4"), FakeArray(np.zeros(4, "f4"), "cpu:1"), array("f4"))


@pytest.mark.parametrize("value", [None, "text", [1.0], object(), np.longdouble(1), np.datetime64("2020-01-01")])
def test_other_objects_are_refused(value: Any) -> None:
    """Neither array nor number: the argument is named."""
    with pytest.raises(LaunchError, match="argument a: expected a number or an array on cpu:0"):
        signature(saxpy, value, array("f4"), array("f4"), array("f4"))


def test_a_host_array_is_refused_with_advice() -> None:
    """The message says how to copy it."""
    with pytest.raises(LaunchError, match=r"aiodev\.asarray"):
        signature(saxpy, 1.0, np.zeros(4, "f4"), array("f4"), array("f4"))


def test_a_body_without_source_is_left_to_the_compiler() -> None:
    """Nothing is known of it, nothing is refused, and an int stays one."""
    namespace: dict[str, Any] = {}
    exec("def body(i, a, x):\n    x[i] = a * x[i]\n", namespace)
    use = analyse(namespace["body"], ("a", "x"))
    assert not use.known
    assert signature(namespace["body"], 2, array("f4")).descriptors[0] == "i8"


def four(i: int, view: Any, z: Any, x: Any, n: Any) -> None:
    x[i, 0] = view[i, 0] + n


def test_each_argument_is_where_the_spec_says() -> None:
    """A backend reads a launch's block by what ``KernelSpec.parse_arguments`` tells, in whatever order the arguments come."""
    x = aiodev.asarray(np.arange(12.0).reshape(3, 4), device="cpu")
    given = x[:, ::2], np.complex128(2 + 3j), x, np.int32(-7)
    described = signature(four, *given)
    block = pack("four", ("view", "z", "x", "n"), described, (5,), given)
    spec = KernelSpec("four", four, 1, described.descriptors)
    view, z, whole, n = (struct.unpack_from(f"<{one.words}q", block, one.offset) for one in spec.parse_arguments())
    assert view == (x._address, 3, 2, 32, 16)
    assert struct.pack("<2q", *z) == struct.pack("<2d", 2.0, 3.0)
    assert whole == (x._address, 3, 4)
    assert n[0] & 0xFFFFFFFF == -7 & 0xFFFFFFFF
    assert len(block) == 8 * (1 + len(view) + len(z) + len(whole) + len(n))

"""The namespace of the array API standard: complete, the library's own functions, blocking where sizes depend on values."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev import array_api, dtypes, kernels
from aiodev.testing import Latch

#: Signatures of the standard, 2024.12, of all functions but those of one array and of two.
SIGNATURES = """
arange(start, /, stop=None, step=1, *, dtype=None, device=None)
asarray(obj, /, *, dtype=None, device=None, copy=None)
empty(shape, *, dtype=None, device=None)
empty_like(x, /, *, dtype=None, device=None)
eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)
from_dlpack(x, /, *, device=None, copy=None)
full(shape, fill_value, *, dtype=None, device=None)
full_like(x, /, fill_value, *, dtype=None, device=None)
linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True)
meshgrid(*arrays, indexing='xy')
ones(shape, *, dtype=None, device=None)
ones_like(x, /, *, dtype=None, device=None)
tril(x, /, *, k=0)
triu(x, /, *, k=0)
zeros(shape, *, dtype=None, device=None)
zeros_like(x, /, *, dtype=None, device=None)
astype(x, dtype, /, *, copy=True, device=None)
can_cast(from_, to, /)
finfo(type, /)
iinfo(type, /)
isdtype(dtype, kind)
result_type(*arrays_and_dtypes)
take(x, indices, /, *, axis=None)
take_along_axis(x, indices, /, *, axis=-1)
tensordot(x1, x2, /, *, axes=2)
vecdot(x1, x2, /, *, axis=-1)
broadcast_arrays(*arrays)
broadcast_to(x, /, shape)
concat(arrays, /, *, axis=0)
expand_dims(x, /, axis)
flip(x, /, *, axis=None)
moveaxis(x, source, destination, /)
permute_dims(x, /, axes)
repeat(x, repeats, /, *, axis=None)
reshape(x, /, shape, *, copy=None)
roll(x, /, shift, *, axis=None)
squeeze(x, /, axis)
stack(arrays, /, *, axis=0)
tile(x, repetitions, /)
unstack(x, /, *, axis=0)
argmax(x, /, *, axis=None, keepdims=False)
argmin(x, /, *, axis=None, keepdims=False)
count_nonzero(x, /, *, axis=None, keepdims=False)
searchsorted(x1, x2, /, *, side='left', sorter=None)
where(condition, x1, x2, /)
argsort(x, /, *, axis=-1, descending=False, stable=True)
sort(x, /, *, axis=-1, descending=False, stable=True)
cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False)
cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False)
max(x, /, *, axis=None, keepdims=False)
mean(x, /, *, axis=None, keepdims=False)
min(x, /, *, axis=None, keepdims=False)
prod(x, /, *, axis=None, dtype=None, keepdims=False)
std(x, /, *, axis=None, correction=0.0, keepdims=False)
sum(x, /, *, axis=None, dtype=None, keepdims=False)
var(x, /, *, axis=None, correction=0.0, keepdims=False)
all(x, /, *, axis=None, keepdims=False)
any(x, /, *, axis=None, keepdims=False)
diff(x, /, *, axis=-1, n=1, prepend=None, append=None)
clip(x, /, min=None, max=None)
"""
OF_ONE = """
abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf isnan log log1p log2
log10 logical_not matrix_transpose negative nonzero positive real reciprocal round sign signbit sin sinh square sqrt tan tanh
trunc unique_all unique_counts unique_inverse unique_values
"""
OF_TWO = """
add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal floor_divide greater
greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor matmul maximum minimum multiply nextafter
not_equal pow remainder subtract
"""
#: By name, without what is optional and by name only in ours.
STANDARD = {line.partition("(")[0]: line for line in SIGNATURES.split("\n") if line}
STANDARD |= {name: f"{name}(x, /)" for name in OF_ONE.split()} | {name: f"{name}(x1, x2, /)" for name in OF_TWO.split()}
DTYPES = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64",
    "complex128",
}  # fmt: skip
#: What is awaited in aiodev.kernels, or takes counts of the host only.
BLOCKING: dict[str, Callable[[aiodev.Array], Any]] = {
    "nonzero": lambda x: array_api.nonzero(x)[0],
    "repeat": lambda x: array_api.repeat(x, x),
    "unique_all": lambda x: array_api.unique_all(x).inverse_indices,
    "unique_counts": lambda x: array_api.unique_counts(x).counts,
    "unique_inverse": lambda x: array_api.unique_inverse(x).inverse_indices,
    "unique_values": lambda x: array_api.unique_values(x),
}


@pytest.fixture
def x() -> aiodev.Array:
    return aiodev.asarray([3, 0, 1, 3], device="cpu")


# The namespace


def test_the_namespace_has_what_the_standard_names() -> None:
    """Functions, dtypes, constants, extensions and the inspection, and nothing else."""
    others = {"e", "inf", "nan", "newaxis", "pi", "linalg", "__array_namespace_info__", "__array_api_version__"}
    assert set(array_api.__all__) - {"fft"} == STANDARD.keys() | DTYPES | others
    assert array_api.newaxis is None and array_api.pi == np.pi and np.isnan(array_api.nan)


@pytest.mark.parametrize("name", sorted(STANDARD))
def test_functions_have_the_signatures_of_the_standard(name: str) -> None:
    """What it gives by position can be given so, and by name what has one there; defaults are the same."""
    ours = list(inspect.signature(getattr(array_api, name)).parameters.values())
    namespace: dict[str, Any] = {}
    exec(f"def {STANDARD[name]}: ...", namespace)
    by_name = {own.name: own for own in ours if own.kind in (own.KEYWORD_ONLY, own.POSITIONAL_OR_KEYWORD)}
    for place, wanted in enumerate(inspect.signature(namespace[name]).parameters.values()):
        if wanted.kind is wanted.KEYWORD_ONLY:
            assert by_name[wanted.name].default == wanted.default
            continue
        own = ours[place]
        if wanted.kind is wanted.POSITIONAL_OR_KEYWORD:
            assert (own.name, own.kind) == (wanted.name, wanted.kind)
        elif wanted.kind is wanted.VAR_POSITIONAL:
            assert own.kind is wanted.kind
        else:
            assert own.kind in (own.POSITIONAL_ONLY, own.POSITIONAL_OR_KEYWORD)
        assert own.default == wanted.default or wanted.default is wanted.empty or name == "arange"


@pytest.mark.parametrize("name", sorted(STANDARD))
def test_functions_are_those_of_the_library(name: str) -> None:
    """The same objects; but for those that are awaited there."""
    assert (getattr(array_api, name) is getattr(kernels, name)) == (name not in BLOCKING)


@pytest.mark.parametrize("version", [None, "2021.12", "2022.12", "2023.12", "2024.12"])
def test_arrays_know_their_namespace(x: aiodev.Array, version: str | None) -> None:
    """By every version of the standard, each of which has what those before it have."""
    assert x.__array_namespace__(api_version=version) is array_api


@pytest.mark.parametrize("version", ["2019.1", "2099.12", "", 2024, "x"])
def test_unknown_versions_of_the_standard_are_refused(x: aiodev.Array, version: Any) -> None:
    """What is there is said."""
    with pytest.raises(ValueError, match=re.escape("expected one of 2021.12, 2022.12")):
        x.__array_namespace__(api_version=version)


def test_what_the_namespace_says_of_itself() -> None:
    """Devices are those that arrays are made on; dtypes by kind; defaults are what is made of Python's numbers."""
    info = array_api.__array_namespace_info__()
    assert aiodev.ones(1).device == info.default_device() and aiodev.Device("cpu") in info.devices()
    assert set(info.dtypes()) == DTYPES
    assert set(info.dtypes(kind=("bool", "unsigned integer"), device="cpu")) == {"bool", "uint8", "uint16", "uint32", "uint64"}
    made = {"real floating": 1.0, "complex floating": 1j, "integral": 1}
    defaults = info.default_dtypes(device=aiodev.Device("cpu"))
    assert all(aiodev.asarray(number).dtype == defaults[kind] for kind, number in made.items())
    assert defaults["indexing"] == kernels.argsort(aiodev.ones(2)).dtype
    assert info.capabilities()["boolean indexing"] and info.capabilities()["data-dependent shapes"]


def test_as_many_dimensions_as_the_namespace_says() -> None:
    """And those in any order of strides."""
    count = array_api.__array_namespace_info__().capabilities()["max dimensions"]
    x = aiodev.ones((2, *(1,) * (count - 2), 3), device="cpu")
    assert (kernels.add(x.T, 1).numpy_blocking() == 2).all() and x.T.ndim == count


# What only the device knows


@pytest.mark.parametrize("name", sorted(BLOCKING))
def test_blocking_functions_give_what_is_awaited(name: str, x: aiodev.Array) -> None:
    """The values are NumPy's."""
    host = np.array([3, 0, 1, 3])
    expected = {
        "nonzero": host.nonzero()[0],
        "repeat": host.repeat(host),
        "unique_all": np.unique_all(host).inverse_indices,
        "unique_counts": np.unique_counts(host).counts,
        "unique_inverse": np.unique_inverse(host).inverse_indices,
        "unique_values": np.unique(host),
    }
    np.testing.assert_array_equal(BLOCKING[name](x).numpy_blocking(), expected[name])


@pytest.mark.parametrize("name", [*sorted(BLOCKING), "__getitem__"])
async def test_blocking_functions_that_hold_the_loop_are_told(name: str, x: aiodev.Array) -> None:
    """By their names, and with what to await in their stead; what is there already is not told."""
    function = BLOCKING.get(name, lambda x: x[x > 0])
    await x.numpy()
    with aiodev.Stream("cpu") as stream:
        aiodev.set_sync_debug_mode("error")
        with Latch(stream):
            y = x + 0
            with pytest.raises(aiodev.SyncError) as caught:
                function(y)
    error = caught.value
    assert error.call == ("Array.__getitem__" if name == "__getitem__" else f"aiodev.array_api.{name}")
    assert error.instead.startswith("await ") and error.place is not None and __file__ in error.place
    aiodev.set_sync_debug_mode("default")
    await y.numpy()


async def test_counts_on_the_device_are_awaited_in_the_library(x: aiodev.Array) -> None:
    """Where ``repeat`` refuses them, and says so."""
    with pytest.raises(TypeError, match="repeat"):
        kernels.repeat(x, x)
    assert await kernels.repeat(x, await x.numpy()).tolist() == [3, 3, 3, 1, 3, 3, 3]


# Indices that hold masks

HOST = np.arange(24).reshape(2, 3, 4)
MASKS: dict[str, tuple[Any, ...]] = {
    "all": (HOST > 3,),
    "first dimensions": (HOST[..., 0] > 3,),
    "last dimensions": (slice(None), HOST[0] > 4),
    "beside integers": ([1, 0], slice(None), HOST[0, 0] > 1),
    "true": (np.array(True),),
    "false": (np.array(False),),
    "true beside an integer": (0, np.array(True)),
    "true beside integers": (slice(None), np.array(True), [0, 1]),
    "none": (HOST > 99,),
}


@pytest.mark.parametrize("where", ["device", "host"])
@pytest.mark.parametrize("case", MASKS)
def test_masks_choose_what_they_choose_of_numpys_arrays(case: str, where: str) -> None:
    """Of as many dimensions as they have, none included, on either side; assignments write there."""
    index = MASKS[case]
    seen = index if where == "host" else tuple(aiodev.asarray(i) if isinstance(i, np.ndarray) else i for i in index)
    x = aiodev.asarray(HOST, device="cpu")
    np.testing.assert_array_equal(x[seen].numpy_blocking(), HOST[index])
    for value in (-7, -HOST[index]):
        expected = HOST.copy()
        expected[index] = value
        x = aiodev.asarray(HOST, device="cpu")
        x[seen] = aiodev.asarray(value, device="cpu")
        np.testing.assert_array_equal(x.numpy_blocking(), expected)


def test_a_mask_of_no_dimensions_for_an_array_of_none() -> None:
    """The only element, or none."""
    x = aiodev.asarray(3.0, device="cpu")
    assert x[x > 1].shape == (1,) and x[x > 5].shape == (0,)
    with pytest.raises(IndexError):
        x[0]


# Methods


def test_to_device(x: aiodev.Array) -> None:
    """By a stream of that device, or the current one; the array itself where it is there."""
    stream = aiodev.Stream("cpu")
    assert x.to_device("cpu") is x and x.to_device(x.device, stream=stream) is x
    with pytest.raises(TypeError, match="to_device: argument stream: expected a Stream"):
        x.to_device("cpu", stream=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "min", "max", "any", "all", "argmin", "argmax"])
def test_reductions_as_methods(name: str) -> None:
    """What the functions give, and NumPy's methods."""
    host = np.array([[1.0, 0.0, 3.0], [4.0, 5.0, -6.0]])
    x = aiodev.asarray(host, device="cpu")
    for axis, keepdims in ((None, False), (0, True), (1, False)):
        found = getattr(x, name)(axis, keepdims=keepdims).numpy_blocking()
        np.testing.assert_allclose(found, getattr(host, name)(axis, keepdims=keepdims))


def test_options_of_methods(x: aiodev.Array) -> None:
    """A sum's dtype, a spread's correction, a conversion's copy."""
    assert x.sum(dtype="float32").dtype == np.float32
    assert float(x.var(correction=1)) == np.var([3, 0, 1, 3], ddof=1) and float(x.std(correction=1)) > 0
    assert x.astype("int64", copy=False) is x and x.astype("int64") is not x and x.astype("f4").dtype == np.float32


# What is shown


def test_options_that_methods_do_not_have(x: aiodev.Array) -> None:
    """The error names the array's method."""
    with pytest.raises(TypeError, match=r"^Array\.std\(\) .*'ddof'"):
        x.std(ddof=1)  # type: ignore[call-arg]


def test_numpys_order_of_arguments(x: aiodev.Array) -> None:
    """How often differences are taken is the second argument."""
    assert kernels.diff(x, 2).numpy_blocking().tolist() == np.diff(x.numpy_blocking(), 2).tolist()


def test_repr_shows_values_that_are_there(x: aiodev.Array) -> None:
    """Beside shape, dtype and device; those of several dimensions below."""
    x.numpy_blocking()
    assert repr(x) == str(x) == "<aiodev.Array (4,) int64 on cpu:0: [3 0 1 3]>"
    assert repr(x.reshape(2, 2)) == "<aiodev.Array (2, 2) int64 on cpu:0:\n[[3 0]\n [1 3]]>"
    assert repr(x[0]) == "<aiodev.Array () int64 on cpu:0: 3>"
    assert repr(aiodev.empty((0, 3), device="cpu")) == "<aiodev.Array (0, 3) float64 on cpu:0: []>"


def test_repr_of_many_values_is_short() -> None:
    """As NumPy's; of bfloat16 too."""
    for dtype in ("float32", "bfloat16"):
        x = aiodev.ones((1000, 1000), dtype, "cpu")
        aiodev.synchronize_blocking("cpu")
        assert "..." in repr(x) and len(repr(x)) < 500


def test_repr_waits_for_nothing(x: aiodev.Array) -> None:
    """Values that work has still to write are not shown."""
    stream = aiodev.Stream("cpu")
    with Latch(stream), stream:
        assert repr(x + 1) == "<aiodev.Array (4,) int64 on cpu:0>"


def test_repr_tells_nobody_of_a_failure(x: aiodev.Array) -> None:
    """The values are not defined, and not shown; whoever waits gets the error."""
    with aiodev.Stream("cpu"):
        y = kernels.take(x, aiodev.asarray([9], device="cpu"))
        while not y._buffer.is_written():
            pass
        assert repr(y) == "<aiodev.Array (1,) int64 on cpu:0>"
        with pytest.raises(aiodev.KernelError):
            y.numpy_blocking()


# Dtypes


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128", "bfloat16"])
def test_limits_of_floats(dtype: str) -> None:
    """What NumPy says, or ml_dtypes, as Python's numbers; of complex numbers those of the parts."""
    if dtype == "bfloat16":
        expected: Any = pytest.importorskip("ml_dtypes").finfo(dtype)
    else:
        expected = np.finfo(dtype)
    found = dtypes.finfo(dtype)
    for name in ("bits", "eps", "max", "min", "smallest_normal", "dtype"):
        assert getattr(found, name) == getattr(expected, name), name
    assert type(found.max) is float and dtypes.finfo(aiodev.ones(2, dtype, "cpu")) == found


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_limits_of_integers(dtype: str) -> None:
    """What NumPy says."""
    found, expected = dtypes.iinfo(np.dtype(dtype)), np.iinfo(dtype)
    assert (found.bits, found.min, found.max, found.dtype) == (expected.bits, expected.min, expected.max, expected.dtype)


@pytest.mark.parametrize(
    ("function", "dtype"),
    [("finfo", "int8"), ("iinfo", "f4"), ("iinfo", bool), ("finfo", object), ("iinfo", 3), ("finfo", None)],
)
def test_limits_that_do_not_exist(function: str, dtype: Any) -> None:
    """Are refused by name."""
    with pytest.raises(TypeError, match=f"{function}: argument type: expected a"):
        getattr(dtypes, function)(dtype)


def test_kinds_of_dtypes() -> None:
    """By name, by dtype, or one of several."""
    kinds = {"bool": "?", "signed integer": "i2", "unsigned integer": "u4", "complex floating": "c8"}
    kinds["real floating"] = "bfloat16"
    for kind, dtype in kinds.items():
        assert [other for other in kinds if dtypes.isdtype(dtype, other)] == [kind]
        assert dtypes.isdtype(dtype, "numeric") == (kind != "bool")
        assert dtypes.isdtype(dtype, "integral") == ("integer" in kind)
        assert dtypes.isdtype(dtype, ("float64", dtype)) and not dtypes.isdtype(dtype, ("float64", "int8"))
    with pytest.raises(ValueError, match="argument kind: expected a dtype, or one of 'bool'"):
        dtypes.isdtype("f4", "floating")


def test_result_types_of_arrays_and_numbers(x: aiodev.Array) -> None:
    """Of arrays the dtype, of Python's numbers the class, which is weak; NumPy's numbers have their dtype."""
    assert dtypes.result_type(x.astype("f4"), 1.5, True) == np.float32
    assert dtypes.result_type(x, np.float32(1)) == np.float64 and dtypes.result_type(aiodev.bfloat16, 2) == aiodev.bfloat16
    assert dtypes.result_type(np.float64(1), "f4") == np.float64 and dtypes.result_type(1, 2.0) == np.float64


def test_casts_are_safe_by_default(x: aiodev.Array) -> None:
    """As NumPy's and the standard's; of arrays, too."""
    assert dtypes.can_cast("i4", "i8") and not dtypes.can_cast(x, "i4") and not dtypes.can_cast("f8", aiodev.bfloat16)
    assert dtypes.can_cast("f8", "f4", "same_kind")

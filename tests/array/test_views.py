"""Views: native code makes the usual ones, functions of Python all; both make the same, and what NumPy makes."""

from __future__ import annotations

import contextlib
import gc
import inspect
import math
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from native import load_native
from selection import examples

import aiodev
from aiodev import autograd
from aiodev._array import form
from aiodev._array.array import Array
from aiodev._array.tuning import MOST_DIMENSIONS

SHAPES = hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4)
#: What Python has in place of each method.
METHODS = {name: f"_full_{name.strip('_')}" for name in ("__getitem__", "reshape", "transpose", "_exchanged", "_broadcast_to")}
BOUNDS = st.none() | st.integers(-6, 6) | st.sampled_from([1 << 62, -(1 << 63), 1 << 70, -(1 << 70)])
STEPS = st.none() | st.integers(-3, 3) | st.sampled_from([1 << 61, 1 << 63, -(1 << 70)])
COIN: st.SearchStrategy[Any] = st.booleans()
ITEMS = st.one_of(
    st.integers(-4, 3),
    st.integers(-1, 0),
    st.builds(slice, BOUNDS, BOUNDS, STEPS),
    st.just(slice(None)),
    st.none(),
    st.just(...),
    st.sampled_from([1 << 70, True, 1.0, "a", np.int64(1), slice(1.0), slice(np.int64(0), None), slice(None, True)]),
)


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """The native code is there."""
    aiodev.init_blocking("cpu")
    load_native()


def outcome(act: Callable[[], aiodev.Array]) -> Any:
    """The array, or the class and the words of the error, but for how much memory there is just then."""
    try:
        return act()
    except Exception as error:
        return type(error), re.sub(r"[\d,]+ (of [\d,]+ free|are allocated|reserved)", r"\1", str(error))


def either(x: aiodev.Array, name: str, *given: Any) -> Any:
    """What both make of it, which is the same: form and place, or the words of an error."""
    assert "built-in" in repr(getattr(x, name))
    native, python = (outcome(lambda of=of: getattr(x, of)(*given)) for of in (name, METHODS[name]))  # type: ignore[misc]
    if not isinstance(native, Array) or not isinstance(python, Array):
        assert native == python
        return native
    assert type(native) is Array and native._form is python._form
    if native._buffer is x._buffer:
        assert python._buffer is x._buffer and native.address == python.address
    else:  # a copy
        assert python._buffer is not x._buffer
    return native


def like_numpy(x: aiodev.Array, host: np.ndarray[Any, Any], found: Any, wanted: Any) -> None:
    """A view is what NumPy makes of the same, or refused as there."""
    if not isinstance(wanted, np.ndarray):
        assert not isinstance(found, Array)
        return
    assert isinstance(found, Array) and found.shape == wanted.shape
    assert np.array_equal(found.numpy_blocking(), wanted)
    if wanted.size and np.shares_memory(wanted, host):
        strides = [(ours, numpys) for ours, numpys, n in zip(found.strides, wanted.strides, wanted.shape, strict=True) if n > 1]
        if not found.is_contiguous:
            assert all(ours == numpys for ours, numpys in strides)
        address = wanted.__array_interface__["data"][0] - host.__array_interface__["data"][0]
        assert found.address - x.address == address


@settings(max_examples=examples(300), deadline=None)
@given(SHAPES, st.lists(st.lists(ITEMS, max_size=5).map(tuple) | ITEMS, min_size=1, max_size=3))
def test_indices(shape: tuple[int, ...], indices: list[Any]) -> None:
    """One after the other, of views of views."""
    host: Any = np.arange(math.prod(shape), dtype="i2").reshape(shape)
    x = aiodev.asarray(host, device="cpu")
    for index in indices:
        found = either(x, "__getitem__", index)
        try:
            wanted = host[index]
        except (IndexError, TypeError, ValueError):
            assert not isinstance(found, Array)
            continue
        items = index if isinstance(index, tuple) else (index,)
        if any(item is True or (type(item) is slice and (item.start, item.stop, item.step).count(True)) for item in items):
            continue  # of which NumPy makes a mask
        if isinstance(found, Array):
            like_numpy(x, host, found, np.asarray(wanted) if not isinstance(wanted, np.ndarray) else wanted)
            if isinstance(wanted, np.ndarray):
                x, host = found, wanted


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_lengths_and_axes(data: st.DataObject) -> None:
    """Of packed arrays and of others: any shape of as many elements, or nearly; any axes."""
    shape = data.draw(SHAPES)
    host = np.arange(math.prod(shape), dtype="f4").reshape(shape)
    x = aiodev.asarray(host, device="cpu")
    axes = data.draw(st.permutations(range(len(shape))))
    cut = data.draw(st.sampled_from([slice(None), slice(None, None, 2), slice(None, None, -1), slice(1, None)]))
    x, host = x.transpose(*axes), host.transpose(*axes)
    if shape:
        x, host = x[cut], host[cut]
    lengths: list[int] = list(data.draw(st.permutations(host.shape)))
    if len(lengths) > 1 and data.draw(COIN):
        lengths[:2] = [lengths[0] * lengths[1]]
    lengths[len(lengths) // 2 : len(lengths) // 2] = [1] * data.draw(st.integers(0, 2))
    if lengths and data.draw(COIN):
        lengths[data.draw(st.integers(0, len(lengths) - 1))] = data.draw(st.sampled_from([-1, -1, 3, 0, 1 << 40, 1 << 70]))
    order = data.draw(st.permutations(range(host.ndim)).map(list))
    if order and data.draw(COIN):
        order[0] = data.draw(st.integers(-7, 7))
    calls: list[tuple[str, tuple[Any, ...], Callable[[], Any]]] = [
        ("reshape", tuple(lengths), lambda: host.reshape(tuple(lengths))),
        ("reshape", (tuple(lengths),), lambda: host.reshape(tuple(lengths))),
        ("reshape", (lengths,), lambda: host.reshape(lengths)),
        ("reshape", (-1,), lambda: host.reshape(-1)),
        ("transpose", (), host.transpose),
        ("transpose", (None,), host.transpose),
        ("transpose", (tuple(order),), lambda: host.transpose(tuple(order))),
        ("_exchanged", (), lambda: np.swapaxes(host, -1, -2)),
    ]
    if order:
        calls.append(("transpose", tuple(order), lambda: host.transpose(order)))
    for name, given_, numpys in calls:
        try:
            wanted: Any = numpys()
        except (ValueError, OverflowError, np.exceptions.AxisError):
            wanted = None
        found = either(x, name, *given_)
        if not isinstance(found, Array) or max(found.shape, default=0) < 1 << 40:  # what is empty may be longer than in NumPy
            like_numpy(x, host, found, wanted)
    repeated = tuple(data.draw(st.lists(st.integers(-1, 3), max_size=2))) + tuple(
        data.draw(st.sampled_from([n, n, n, 3])) for n in host.shape
    )
    try:
        wanted = np.broadcast_to(host, repeated)
    except ValueError:
        wanted = None
    found = either(x, "_broadcast_to", repeated)
    like_numpy(x, host, found, wanted)
    assert wanted is None or not found.writable


def test_lengths_that_fit_no_word() -> None:
    """Of what is repeated very often, and of what is empty: sizes may be such, lengths are refused."""
    x = aiodev.zeros((1, 4), "i1", "cpu")
    for shape in ((1 << 63, 4), (1 << 70, 4)):
        assert "is no 64-bit number" in str(either(x, "_broadcast_to", shape))
        assert "is no 64-bit number" in str(either(x[:0], "reshape", (*shape, 0)))
    for shape in ((1 << 62, 4), (1 << 62, 1 << 62, 4), (0, 1 << 62, 4), ((1 << 63) - 1, 0, 4)):
        y = either(x, "_broadcast_to", shape) if shape[-2] else aiodev.empty((0, 4), "i1", "cpu").reshape(shape)
        assert y.shape == shape
        for index in (0, -1, 1 << 61, 1 << 69, ..., None, slice(1 << 61, None), slice(None, None, -(1 << 61)), slice(1, 5)):
            either(y, "__getitem__", index)
            either(y, "__getitem__", (..., index))
            either(y, "__getitem__", (..., index, 0))
        either(y, "transpose")
        either(y, "_exchanged")
        either(y, "reshape", shape[::-1])
        either(y, "reshape", -1)
        either(y, "_broadcast_to", (2, *shape))


def test_as_many_dimensions_as_there_may_be() -> None:
    """And one more, which is refused."""
    for ndim in (MOST_DIMENSIONS - 1, MOST_DIMENSIONS):
        x = aiodev.ones((2, 3), "i1", "cpu")
        y = either(x, "__getitem__", (None,) * (ndim - 2))
        z = either(x.T, "reshape", (*(1,) * (ndim - 2), 3, 2))
        assert y.ndim == z.ndim == ndim and z[..., 1:, :].size == 4
        for one in (y, z):
            for name, given_ in (
                ("transpose", ()),
                ("transpose", tuple(range(ndim))),
                ("_exchanged", ()),
                ("reshape", (2, 3)),
                ("_broadcast_to", ((4, *one.shape),)),
                ("__getitem__", (None,)),
                ("__getitem__", ((slice(None),) * ndim,)),
                ("__getitem__", ((0,) * ndim,)),
                ("__getitem__", ((0,) * (ndim + 1),)),
            ):
                found, most = either(one, name, *given_), MOST_DIMENSIONS
                if ndim == most and given_ in (((4, *one.shape),), (None,)):
                    assert f"at most {most}" in str(found)
                else:
                    assert isinstance(found, Array) is (given_ != ((0,) * (ndim + 1),)), (name, given_)


def test_a_way_that_copies() -> None:
    """Where strides cannot express a shape both functions make an array of its own."""
    host = np.arange(6).reshape(2, 3)
    x = aiodev.asarray(host, device="cpu")
    assert (either(x.T, "reshape", 6).numpy_blocking() == host.T.reshape(6)).all()
    for lengths in ((-2, 3), (-2,), (-1, -1), (-1, 4), (2, -3)):  # of which NumPy takes some
        assert either(x, "reshape", lengths) == either(x, "reshape", *lengths)
    assert x.T.reshape(6)._buffer is not x._buffer and x.reshape(6)._buffer is x._buffer


# Arrays that are no longer there


def test_an_array_that_its_index_frees() -> None:
    """Code of Python in an index, which may do anything."""

    class Freeing:
        def __init__(self, x: aiodev.Array) -> None:
            self.x = x

        def __index__(self) -> int:
            self.x.free()
            return 1

    for index in (lambda one: one, lambda one: slice(one, None), lambda one: (slice(None, one), 0), lambda one: (..., one)):
        for name in ("__getitem__", "_full_getitem"):
            x = aiodev.ones((4, 4), device="cpu")
            with pytest.raises(aiodev.ClosedError):
                getattr(x, name)(index(Freeing(x)))
            with pytest.raises(aiodev.ClosedError):
                x[0]
    x = aiodev.ones((4, 4), device="cpu")
    with pytest.raises(aiodev.ClosedError):
        x.reshape(Freeing(x), 16)


@pytest.mark.parametrize("length", range(900, 910))
def test_an_array_that_a_collection_frees(length: int) -> None:
    """A finalizer runs wherever a new form is made: the view is of memory that is there, or there is none."""
    x = aiodev.ones((4, 1000), device="cpu")

    def free(phase: str, _: object) -> None:
        if phase == "start" and type(x) is Array:
            try:
                x.free()
            except ValueError:  # the view is there already
                freed.append(False)

    freed = list[bool]()
    thresholds = gc.get_threshold()
    gc.callbacks.append(free)
    gc.set_threshold(1)
    try:
        view = outcome(lambda: x[:, 3:length])
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(free)
    if isinstance(view, Array):
        assert view.shape == (4, length - 3) and (view.numpy_blocking() == 1).all()
    else:
        assert view[0] is aiodev.ClosedError and not freed


def test_threads_that_view_and_free() -> None:
    """A view is of memory that stays; an array that is freed meanwhile has none, nor is it freed where there is a view."""
    refused = list[BaseException]()
    views = list[aiodev.Array]()

    def view(arrays: list[aiodev.Array]) -> None:
        for n, x in enumerate(arrays):
            try:
                views.append(x[: 1 + n % 7].reshape(1, -1).T)
            except (aiodev.ClosedError, AttributeError) as error:
                refused.append(error)

    def free(arrays: list[aiodev.Array]) -> None:
        for x in arrays:
            with contextlib.suppress(ValueError):  # a view has its memory
                x.free()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            arrays = [aiodev.ones(8, "f8", "cpu") for _ in range(50)]
            threads = [threading.Thread(target=target, args=(arrays,)) for target in (view, free)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(views) + len(refused) == 20 * 50
    assert all((one.numpy_blocking() == 1).all() for one in views)


@pytest.fixture
def few_objects() -> Iterator[None]:
    """What was there before is none that is walked through."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("few_objects")
def test_no_reference_is_kept_or_lost() -> None:
    """Whatever comes of a call: of the array, its buffer and forms, ints and what all arrays share."""
    x = aiodev.ones((2, 6), "f4", "cpu")
    turned, index, far = x.T, (slice(None), 2), 1 << 70
    row, lengths, start = x[0], (3, 4), x._address
    empty = aiodev.empty((0, 3), "f4", "cpu")
    calls: list[Callable[[], object]] = [
        lambda: x[index], lambda: x[1], lambda: x[..., None, 1:], lambda: x[::-1, ::2], lambda: x[()], lambda: empty[:, 1:],
        lambda: x.reshape(lengths), lambda: x.reshape(-1), lambda: turned.reshape(2, 3, 2), lambda: x.reshape(3, -1, 2),
        lambda: x.transpose(), lambda: x.transpose(1, 0), lambda: x.mT, lambda: aiodev.broadcast_to(x, (3, 2, 6)),
        lambda: list(x), lambda: x[:, np.int64(2)], lambda: row[True:], lambda: x[far:],
        # refused
        lambda: x[7], lambda: x[far], lambda: x[0, 0, 0], lambda: x[..., ...], lambda: x[::0], lambda: x[1.0], lambda: x[: "a"],
        lambda: x.reshape(5), lambda: x.reshape(-1, -1), lambda: x.reshape(far), lambda: x.reshape(lengths, 1),
        lambda: x.transpose(0), lambda: x.transpose(0, 0), lambda: x.transpose(0, far), lambda: row.mT,
        lambda: aiodev.broadcast_to(x, (3, 6)), lambda: aiodev.broadcast_to(x, (far, -1)),
        lambda: x.reshape(shape=lengths),  # type: ignore[call-arg]
    ]  # fmt: skip
    watched = [x, x._buffer, x._form, turned._form, row._form, x[index]._form, index, lengths, far, start, x.shape, x.strides]
    watched += [0, 1, None, True, False, ..., int, slice, tuple, Array, x.device, x.dtype, "_full_getitem"]

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(one) for one in watched]

    def run(call: Callable[[], object]) -> None:
        for _ in range(2000):
            with contextlib.suppress(IndexError, TypeError, ValueError):
                call()

    for call in calls:
        run(call)
    for number, call in enumerate(calls):
        before, objects = counts(), len(gc.get_objects())
        run(call)
        changes = [after - count for count, after in zip(before, counts(), strict=True)]
        assert all(abs(change) < 200 for change in changes), (number, changes)
        assert len(gc.get_objects()) - objects < 200, number
    before = counts()
    kept = [x[:, 1 : 2 + n % 5] for n in range(1000)]
    assert sys.getrefcount(x._buffer) - before[1] == 1000
    del kept
    assert sys.getrefcount(x._buffer) == before[1]


def test_new_forms_are_let_go() -> None:
    """With all that they are made of, when the table has forgotten them."""

    def forget_all() -> None:
        while form._forms:
            form._forget_oldest()
        gc.collect()

    x = aiodev.zeros((2, 3000), "i1", "cpu")
    forget_all()
    before = sys.getrefcount(x.device), sys.getrefcount(x.dtype), sys.getrefcount(x._buffer)
    for n in range(1, 3000):
        x[:, :n].T.reshape(-1, 1, 2)
    assert len(form._forms) > 8000
    forget_all()
    assert not [one for one in gc.get_objects() if type(one) is form.Form and one.shape[-1:] == (2999,)]
    after = sys.getrefcount(x.device), sys.getrefcount(x.dtype), sys.getrefcount(x._buffer)
    assert all(abs(new - old) < 200 for old, new in zip(before, after, strict=True))


# What else there is


def test_a_variable_has_its_own() -> None:
    """Which are recorded."""
    host = np.arange(6.0).reshape(2, 3)
    x = autograd.Variable(aiodev.asarray(host, device="cpu"))
    for view, wanted in ((x[1], host[1]), (x.T, host.T), (x.mT, host.T), (x.reshape(3, -1), host.reshape(3, -1))):
        assert type(view) is autograd.Variable and np.array_equal(view.detach().numpy_blocking(), wanted)
    repeated = aiodev.broadcast_to(x, (2, 2, 3))
    assert type(repeated) is autograd.Variable and repeated.shape == (2, 2, 3)
    with pytest.raises(ValueError, match="mT: expected an array of at least 2 dimensions"):
        _ = x[0].mT


def test_methods_of_native_code_say_what_they_are() -> None:
    """Parameters and documentation are those of the function of Python."""
    for name in ("__getitem__", "reshape", "transpose"):
        native, python = getattr(Array, name), getattr(Array, METHODS[name])
        assert inspect.ismethoddescriptor(native) and inspect.isfunction(python)
        assert inspect.getdoc(native) == inspect.getdoc(python)
        assert native.__name__ == name and native.__qualname__ == f"Array.{name}"
        ours, pythons = (list(inspect.signature(one).parameters.values())[1:] for one in (native, python))
        assert [(one.name, one.kind) for one in ours] == [(one.name, one.kind) for one in pythons] or name == "__getitem__"


def test_iteration() -> None:
    """By rows."""
    host = np.arange(6).reshape(3, 2)
    for row, wanted in zip(aiodev.asarray(host, device="cpu"), host, strict=True):
        assert (row.numpy_blocking() == wanted).all()

"""Errors as values: copies of them, and pickles."""

from __future__ import annotations

import copy
import pickle

import pytest

import aiodev

_KERNEL = aiodev.KernelError("k", "it failed", location="a.py:3", submitted_at="b.py:7")
_ERRORS = [
    aiodev.BackendNotFoundError("abacus", ("cpu",)),
    aiodev.BackendUnavailableError("cuda", "no driver"),
    aiodev.BadForkError("a stream", "spawn"),
    aiodev.DeviceLostError("cuda:0", "an illegal address"),
    aiodev.OutOfMemoryError("cuda:0", 8, allocated=1, reserved=2, free=3, total=4),
    aiodev.InvalidDeviceError("cpu:9", "there is 1"),
    aiodev.CompileError("k", "unknown name"),
    aiodev.LaunchError("k", "x", "an array", "a number"),
    aiodev.DependencyError("k"),
    aiodev.WithdrawnError("a stream", 7, withdrawn_at="c.py:9"),
    aiodev.StreamFullError("a stream", 3),
    aiodev.ClosedError("a stream"),
    aiodev.CallError("call"),
    aiodev.ThreadLimitError(),
    _KERNEL,
]


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: type(error).__name__)
def test_copies_and_pickles_say_the_same(error: aiodev.AiodevError) -> None:
    """With all attributes, also across processes."""
    for made in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(made) is type(error)
        assert (str(made), made.args, vars(made)) == (str(error), error.args, vars(error))


@pytest.mark.parametrize(
    ("kind", "derived"),
    [
        (aiodev.BackendError, (aiodev.BackendNotFoundError, aiodev.BackendUnavailableError, aiodev.BadForkError)),
        (aiodev.DeviceError, (aiodev.DeviceLostError, aiodev.OutOfMemoryError, aiodev.CaptureError, aiodev.InvalidDeviceError)),
        (aiodev.KernelError, (aiodev.CompileError, aiodev.LaunchError, aiodev.DependencyError)),
    ],
)
def test_errors_of_one_kind_are_caught_together(kind: type[Exception], derived: tuple[type[Exception], ...]) -> None:
    """And all of them as errors of aiodev."""
    assert all(issubclass(error, kind) for error in derived)
    assert issubclass(kind, aiodev.AiodevError)

"""Files of arrays: what is saved is loaded, what is in a file is of one moment, and nothing blocks the loop."""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from halves import halves, refuse

pytest.importorskip("safetensors", reason="safetensors is not installed")
from safetensors.numpy import load_file, save_file

import aiodev
from aiodev import autograd, optim, testing
from aiodev.interop import safetensors

pytestmark = pytest.mark.anyio

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES += ["float16", "bfloat16", "float32", "float64", "complex64"]


async def test_every_dtype(tmp_path: Path) -> None:
    """Arrays of any dtype that both have come back to the bit, whatever their shapes and strides."""
    state = {}
    for number, dtype in enumerate(DTYPES):
        host = np.arange(6).reshape(2, 3) % 2 if dtype == "bool" else np.arange(6).reshape(2, 3) + number
        state[dtype] = aiodev.asarray(host.astype(aiodev.dtypes.parse_dtype(dtype)), device="cpu")
    state |= {"none": aiodev.empty((0, 3), device="cpu"), "number": aiodev.full((), 7.0, device="cpu")}
    state |= {"turned": state["float32"].T, "every second": state["int64"][:, ::2]}
    await safetensors.save(tmp_path / "x", state)
    loaded = await safetensors.load(tmp_path / "x", "cpu")
    assert sorted(loaded) == sorted(state)
    for name, array in state.items():
        assert loaded[name].dtype == array.dtype and loaded[name].device is array.device
        assert np.array_equal(await loaded[name].numpy(), await array.numpy())


@pytest.mark.parametrize("order", "<>")
async def test_the_order_of_bytes(tmp_path: Path, order: str) -> None:
    """The values are kept, and not the bytes of NumPy's arrays."""
    state = {dtype: np.arange(6).reshape(2, 3).T.astype(order + dtype) for dtype in ("i2", "u8", "f4", "f8", "c8")}
    await safetensors.save(tmp_path / "x", {**state, "__metadata__ of x": np.ones(1), "y": {"__metadata__": np.ones(1)}})
    loaded = await safetensors.load(tmp_path / "x", "cpu")
    for dtype, host in state.items():
        assert np.array_equal(await loaded[dtype].numpy(), host)
    assert await loaded["y"]["__metadata__"].tolist() == [1.0]


async def test_a_state_with_other_things(tmp_path: Path) -> None:
    """Mappings, numbers, texts, truth values and None come back as they were; arrays of NumPy's as arrays of the device."""
    state: dict[str, Any] = {
        "model": {"layers": {"0": {"w": np.arange(3.0)}}, "empty": {}},
        "epoch": 7,
        "rate": 0.1,
        "infinite": float("inf"),
        "name": "ünï",
        "best": None,
        "done": False,
    }
    await safetensors.save(tmp_path / "x", state)
    loaded = await safetensors.load(tmp_path / "x", "cpu")
    w = loaded["model"]["layers"]["0"].pop("w")
    assert await w.tolist() == [0.0, 1.0, 2.0]
    del state["model"]["layers"]["0"]["w"]
    assert loaded == state
    assert load_file(tmp_path / "x")["model.layers.0.w"].tolist() == [0.0, 1.0, 2.0]  # under a name that anybody sees


async def test_files_of_other_programs(tmp_path: Path) -> None:
    """Their arrays are there by name; and they read ours."""
    hosts = {"a.b": np.arange(4, dtype=np.float32), "c": np.ones((2, 2), np.int64)}
    save_file(hosts, tmp_path / "theirs", metadata={"format": "np"})
    loaded = await safetensors.load(tmp_path / "theirs", "cpu")
    assert loaded.keys() == hosts.keys()
    await safetensors.save(tmp_path / "ours", loaded)
    for name, host in load_file(tmp_path / "ours").items():
        assert np.array_equal(host, hosts[name])


MAKERS: list[Any] = [lambda p: optim.SGD(p, 0.1, momentum=0.9), lambda p: optim.AdamW(p, 0.1)]


@pytest.mark.parametrize("make", MAKERS, ids=["SGD", "AdamW"])
async def test_training_goes_on(tmp_path: Path, make: Any) -> None:
    """From a file, as if it had not stopped."""

    async def train(w: Any, optimizer: optim.Optimizer, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            await ((w - 3.0) ** 2).sum().backward()
            optimizer.step()

    w = autograd.Variable(aiodev.asarray([0.0, 1.0], device="cpu"))
    optimizer = make([w])
    await train(w, optimizer, 3)
    await safetensors.save(tmp_path / "x", {"w": w, "optimizer": optimizer.state_dict()})
    await train(w, optimizer, 3)
    state = await safetensors.load(tmp_path / "x", "cpu")
    again = autograd.Variable(state["w"])
    other = make([again])
    other.load_state_dict(state["optimizer"])
    await train(again, other, 3)
    assert np.array_equal(await again.numpy(), await w.numpy())


async def test_a_file_is_of_one_moment(tmp_path: Path) -> None:
    """What is submitted after the call has begun is not in the file, though it is written later."""
    stream = aiodev.Stream("cpu")
    with stream:
        arrays = {str(k): aiodev.zeros(3, device="cpu") for k in range(3)}
        latch = testing.Latch(stream)
        async with anyio.create_task_group() as group:
            group.start_soon(safetensors.save, tmp_path / "x", arrays)
            await anyio.wait_all_tasks_blocked()
            for array in arrays.values():
                array += 1.0
            latch.release()
    for array in (await safetensors.load(tmp_path / "x", "cpu")).values():
        assert await array.tolist() == [0.0, 0.0, 0.0]


async def test_writers_on_other_streams_are_waited_for(tmp_path: Path) -> None:
    """On the device, as for any read."""
    with aiodev.Stream("cpu") as side:
        latch = testing.Latch(side)
        array = aiodev.full(3, 5.0, device="cpu")
    async with anyio.create_task_group() as group:
        with aiodev.Stream("cpu"):
            group.start_soon(safetensors.save, tmp_path / "x", {"x": array})
        await anyio.wait_all_tasks_blocked()
        latch.release()
    assert await (await safetensors.load(tmp_path / "x", "cpu"))["x"].tolist() == [5.0, 5.0, 5.0]


@pytest.mark.parametrize("is_told", [False, True])
async def test_an_array_that_could_not_be_written(tmp_path: Path, is_told: bool) -> None:
    """Is in no file, also where somebody has heard of the failure, which is over for others."""
    array, *_ = halves(8)
    with aiodev.Stream("cpu") as stream:
        done = refuse[8](array)
        if is_told:
            with pytest.raises(aiodev.KernelError):
                await done
        with pytest.raises(aiodev.KernelError):
            await safetensors.save(tmp_path / "x", {"array": array})
    assert not (tmp_path / "x").exists()
    assert await stream.call(sum, [1, 2]) == 3


async def test_files_are_another_threads_business(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the file system is touched by the loop's thread."""
    threads = set()

    def watched(own: Any, *args: Any, **kwargs: Any) -> Any:
        threads.add(threading.get_ident())
        return own(*args, **kwargs)

    for name in ("serialize_file", "safe_open"):
        monkeypatch.setattr(safetensors, name, functools.partial(watched, getattr(safetensors, name)))
    await safetensors.save(tmp_path / "x", {"x": aiodev.ones(3, device="cpu")})
    await safetensors.load(tmp_path / "x", "cpu")
    assert threads and threading.get_ident() not in threads


async def test_a_file_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was there before is left as it was, and nothing beside it."""
    await safetensors.save(tmp_path / "x", {"x": aiodev.ones(3, device="cpu")})
    before = (tmp_path / "x").read_bytes()

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr(safetensors, "serialize_file", fail)
    with pytest.raises(OSError, match="no space"):
        await safetensors.save(tmp_path / "x", {"x": aiodev.zeros(3, device="cpu")})
    assert (tmp_path / "x").read_bytes() == before and os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        ({"x": [1, 2]}, TypeError, "save: x: |argument x"),
        ({"x": {"y": object()}}, TypeError, "x.y"),
        ({1: 2}, TypeError, "names that are texts"),
        ([], TypeError, "a mapping"),
        ({"a.b": np.ones(1), "a": {"b": np.ones(1)}}, ValueError, "two arrays have this name"),
        ({"x": np.ones(1, "complex128")}, TypeError, "x: the format has no complex128"),
        ({"__metadata__": np.ones(1)}, ValueError, "'__metadata__': a file can have no array of this name"),
        ({"x": {"\ud800": np.ones(1)}}, ValueError, r"'x.\\ud800': a file can have no array of this name"),
    ],
)
async def test_states_that_are_refused(tmp_path: Path, state: Any, error: type[Exception], message: str) -> None:
    """They are named, and there is no file."""
    with pytest.raises(error, match=message):
        await safetensors.save(tmp_path / "x", state)
    assert not os.listdir(tmp_path)


async def test_a_capture_takes_no_part(tmp_path: Path) -> None:
    """What is captured is not there yet; the refusal records nothing."""
    async with aiodev.capture(aiodev.Stream("cpu")) as graph:
        with pytest.raises(aiodev.CaptureError, match="save"):
            await safetensors.save(tmp_path / "x", {"x": aiodev.empty(3)})
    assert len(graph) == 0


TREES = ["[]", '"x"', "{", '{"x": ["y"]}', '{"x": ["x", "x"]}', '{"x": [["x"]]}', "{}", '{"y": ' * 2000 + "1" + "}" * 2000]


@pytest.mark.parametrize("content", [b"", b"\0" * 50, b"\xff" * 50, *TREES], ids=range(3 + len(TREES)))
async def test_files_that_are_none(tmp_path: Path, content: bytes | str) -> None:
    """Or that say of themselves what is not so."""
    if isinstance(content, str):
        save_file({"x": np.ones(2)}, tmp_path / "x", metadata={"aiodev": content})
    else:
        (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match="x: "):
        await safetensors.load(tmp_path / "x", "cpu")


async def test_a_dtype_that_arrays_have_not(tmp_path: Path) -> None:
    """It is named, with the array."""
    header = json.dumps({"w": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    with pytest.raises(TypeError, match="w: there are no arrays of the format's F8_E4M3"):
        await safetensors.load(tmp_path / "x", "cpu")


async def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """It is no other error than of any file."""
    with pytest.raises(FileNotFoundError):
        await safetensors.load(tmp_path / "x", "cpu")


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.delitem(sys.modules, "aiodev.interop.safetensors")
    with pytest.raises(ImportError, match=r"pip install 'aiodev\[safetensors\]'"):
        importlib.import_module("aiodev.interop.safetensors")

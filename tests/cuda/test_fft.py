"""Transforms through a stand-in for cuFFT on the stand-in driver, which transforms by the definition."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest

from aiodev.kernels.fft import cufft

Run = Callable[..., str]

_PREAMBLE = """
import numpy as np
from aiodev.kernels import fft
from aiodev.kernels.fft import cufft
cufft.find_library = lambda: library
chance = np.random.default_rng(1)
def random(*shape, dtype="d"):
    x = chance.standard_normal(shape)
    return (x + 1j * chance.standard_normal(shape) if dtype in "FD" else x).astype(dtype)
aiodev.set_device("cuda:0")
"""


@pytest.mark.parametrize("types", ["fF", "dD"])
def test_every_transform(run: Run, types: str) -> None:
    """As NumPy's: along each axis, padded and cut, each norm, several axes; elements where they lie, by rows and by columns."""
    run(
        _PREAMBLE
        + f"real, wide = {types!r}"
        + """
async def check(name, x, **options):
    found = await getattr(fft, name)(aiodev.asarray(x), **options).numpy()
    expected = getattr(np.fft, name)(x, **options)
    assert found.dtype == expected.astype(wide if expected.dtype.kind == "c" else real).dtype
    np.testing.assert_allclose(found, expected, 2e-4, 2e-4, err_msg=f"{name} {x.shape} {x.dtype} {options}")
async def main():
    of_type = {"fft": wide, "ifft": wide, "rfft": real, "irfft": wide, "hfft": wide, "ihfft": real}
    for shape in ((6,), (4, 6), (2, 3, 5)):
        for name, dtype in of_type.items():
            for axis in range(len(shape)):
                for n, norm in ((None, "backward"), (4, "ortho"), (7, "forward"), (1, "backward")):
                    if n is None and name in ("irfft", "hfft") and shape[axis] == 1:
                        continue
                    await check(name, random(*shape, dtype=dtype), n=n, axis=axis, norm=norm)
        for name, dtype in {"fftn": wide, "ifftn": wide, "rfftn": real, "irfftn": wide}.items():
            await check(name, random(*shape, dtype=dtype))
    await check("fftn", random(3, 4, 5, dtype=wide), axes=(0, 2), s=(5, 2))
    x = random(4, 6, dtype=wide)
    y = aiodev.asarray(x)
    assert fft.fft(y, out=y) is y
    np.testing.assert_allclose(await y.numpy(), np.fft.fft(x), 2e-4, 2e-4)
    out = aiodev.empty((6, 4), y.dtype)
    fft.fft(aiodev.asarray(x), out=out.T)
    np.testing.assert_allclose((await out.numpy()).T, np.fft.fft(x), 2e-4, 2e-4)
    views = aiodev.asarray(random(8, 6, dtype=wide))
    np.testing.assert_allclose(await fft.fft(views[::2, 1:5]).numpy(), np.fft.fft((await views.numpy())[::2, 1:5]), 2e-4, 2e-4)
asyncio.run(main())
"""
    )


def test_transforms_on_many_streams(run: Run) -> None:
    """One plan serves all streams and threads at once, each in its order, none waits; failures are the stream's."""
    said = run(
        _PREAMBLE
        + """
import threading
x = random(4, 8, dtype="D")

async def chain(stream):
    with stream:
        y = aiodev.asarray(x)
        for _ in range(30):
            y = fft.ifft(fft.fft(y))
        return await y.numpy()

async def several():
    for y in await asyncio.gather(*(chain(aiodev.Stream()) for _ in range(4))):
        np.testing.assert_allclose(y, x, 1e-9)

asyncio.run(several())
threads = [threading.Thread(target=lambda: asyncio.run(several())) for _ in range(3)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print(driver.count("cufftCreate"))

async def failing():
    stream = aiodev.Stream()
    with stream:
        y = aiodev.asarray(x)
        driver.inject("cufftExecZ2Z", 6)
        fft.fft(y)
        try:
            await stream.synchronize()
        except aiodev.DeviceError as error:
            print(error)
        driver.inject("cufftMakePlanMany64", 8)
        for _ in range(2):
            try:
                found = await fft.fft(y[:, :5]).numpy()
            except RuntimeError as error:
                print(str(error).removeprefix(library))
        np.testing.assert_allclose(found, np.fft.fft(x[:, :5]), 1e-9)
    cufft.find_library = lambda: None
    try:
        fft.fft(y)
    except NotImplementedError as error:
        print("aiodev[cuda12]" in str(error))
asyncio.run(failing())
"""
    )
    assert said.splitlines() == [
        "1",
        "call_native on cuda:0: function 2 of the calls returned 6",
        ": cufftMakePlanMany64 returned 8",
        "True",
    ]


def test_plans_are_few(run: Run) -> None:
    """Of many plans those that were used last are kept; others are given back, once nothing is under way that uses them."""
    said = run(
        _PREAMBLE
        + """
import gc
cufft.PLANS_KEPT = 4
async def main():
    x = aiodev.asarray(random(64, dtype="D"))
    await fft.fft(x[:3]).numpy()
    async with aiodev.capture() as graph:
        found = fft.fft(x[:3])
    for n in range(4, 20):
        await fft.fft(x[:n]).numpy()
    await graph.replay()
    np.testing.assert_allclose(await found.numpy(), np.fft.fft((await x.numpy())[:3]), 1e-9)
    del graph, found
    gc.collect()
    await aiodev.synchronize()
    while driver.count("cufftDestroy") < 13:
        await asyncio.sleep(0)
    try:
        async with aiodev.capture():
            fft.fft(x[:30])
    except aiodev.CaptureError as error:
        print(driver.count("cufftCreate"), driver.count("cufftDestroy"), "call it once before" in str(error))
asyncio.run(main())
"""
    )
    assert said == "17 13 True\n"


def test_the_library_has_what_is_called() -> None:
    """Where cuFFT is installed it has all functions that are called."""
    file = cufft.find_library()
    if file is None:
        pytest.skip("cuFFT is not installed")
    library = ctypes.CDLL(file)
    names = ["Create", "Destroy", "SetAutoAllocation", "MakePlanMany64", "SetStream", "SetWorkArea"]
    for name in (*(f"cufft{name}" for name in names), *(name for both in cufft._TYPES.values() for _, name in both)):
        assert hasattr(library, name), name

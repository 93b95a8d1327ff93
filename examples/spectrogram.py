"""
A spectrogram in real time
==========================

Sound arrives in blocks of 32 ms, as from a sound card. For each block the device computes the power of 256 frequencies by a
windowed discrete Fourier transform, on a stream of its own; the columns of the picture come back in order while the next
block is already being recorded. The signal is two tones, a sweep and some noise, so that the picture can be checked by eye.
"""

import asyncio
import math
import time

import matplotlib.pyplot as plt
import numpy as np

import aiodev

RATE, BLOCK, BINS = 16_000, 512, 256
SPEED = 4  # times faster than the microphone, so that the example is over soon


@aiodev.kernel
def power(k, samples, window, out):
    """Power of frequency ``k``, by Goertzel's recurrence."""
    coefficient = 2.0 * math.cos(2.0 * math.pi * k / samples.shape[0])
    before, last = 0.0, 0.0
    for n in range(samples.shape[0]):
        before, last = last, samples[n] * window[n] + coefficient * last - before
    out[k] = 10.0 * math.log10(last * last + before * before - coefficient * last * before + 1e-12)


def sound(seconds):
    """Two tones, a sweep from 500 to 7,000 Hz, and noise."""
    t = np.arange(int(seconds * RATE)) / RATE
    sweep = np.sin(2 * np.pi * (500 * t + (7000 - 500) / (2 * seconds) * t**2))
    tones = 0.3 * np.sin(2 * np.pi * 1000 * t) + 0.3 * np.sin(2 * np.pi * 3000 * t)
    return (sweep + tones + 0.01 * np.random.default_rng(0).standard_normal(t.size)).astype(np.float32)


async def microphone(signal):
    """Yield blocks that overlap by half, when their last sample has been recorded."""
    began = time.perf_counter()
    for start in range(0, signal.size - BLOCK + 1, BLOCK // 2):
        await asyncio.sleep(began + (start + BLOCK) / RATE / SPEED - time.perf_counter())
        yield signal[start : start + BLOCK]


async def main():
    signal = sound(seconds=4)
    columns, lateness = [], []

    async def show(pending):
        """Take finished columns off the queue, in order, and note how long each took."""
        while (item := await pending.get()) is not None:
            recorded, array = item
            columns.append(await array.numpy())
            lateness.append(time.perf_counter() - recorded)

    async with aiodev.device("cpu"), aiodev.Stream():
        window = aiodev.asarray(np.hanning(BLOCK).astype(np.float32))
        await power.compile(aiodev.empty(BLOCK, dtype=np.float32), window, aiodev.empty(BINS, dtype=np.float32))
        pending = asyncio.Queue()
        showing = asyncio.create_task(show(pending))
        async for block in microphone(signal):
            column = aiodev.empty(BINS, dtype=np.float32)
            power[BINS](aiodev.asarray(block), window, column)  # queued; the microphone is not kept waiting
            pending.put_nowait((time.perf_counter(), column))
        pending.put_nowait(None)
        await showing

    picture = np.array(columns).T
    print(f"{picture.shape[1]} columns; from recorded to shown {np.median(lateness) * 1e3:.2f} ms (median)")
    figure, chart = plt.subplots(figsize=(8, 4), layout="constrained")
    extent = (0, signal.size / RATE, 0, RATE / 2000)
    image = chart.imshow(picture, origin="lower", aspect="auto", extent=extent, vmin=-20, cmap="magma")
    figure.colorbar(image, label="dB")
    chart.set(xlabel="s", ylabel="kHz")
    plt.show()


asyncio.run(main())

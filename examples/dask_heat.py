"""
The heat equation on several workers
====================================

A plate is cut into strips, and each worker of a Dask cluster has one of them on its device. A step needs the rows next to a
strip, which another worker has. So before every eight steps the neighbours give each other eight rows, and compute a few
rows twice instead of exchanging one row eight times: :func:`aiodev.dask.stencil`.

Every element comes from the same values by the same kernel, wherever strips end. So the result has the bits of one device.

Here the workers are two processes of this machine. With the address of a scheduler in the place of ``LocalCluster`` they are
those of as many machines as there are (:doc:`/howto/dask`).
"""

import asyncio
import logging

import matplotlib.pyplot as plt
import numpy as np
from dask.distributed import Client, LocalCluster

import aiodev
import aiodev.dask
import aiodev.kernels

ROWS, COLUMNS, STEPS = 192, 128, 240
STRIPS = 4  # two for each worker: while one strip waits for its neighbours, the other is computed


@aiodev.kernel(ndim=2)
def diffuse(i, j, u, rate, out):
    here = u[i + 1, j]
    if j == 0 or j == out.shape[1] - 1:
        out[i, j] = here  # the sides keep their temperature
    else:
        out[i, j] = here + rate * (u[i, j] + u[i + 2, j] + u[i + 1, j - 1] + u[i + 1, j + 1] - 4 * here)


def step(u):
    """The next values of all rows but the first and the last; submitted, not waited for."""
    out = aiodev.empty((u.shape[0] - 2, u.shape[1]), u.dtype)
    diffuse[out.shape](u, 0.2, out)
    return out


async def on_a_cluster(plate):
    """The plate after all steps, and the workers that have computed it."""
    async with (
        LocalCluster(
            n_workers=2, threads_per_worker=4, asynchronous=True, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        devices = await aiodev.dask.install(client)
        # Each strip goes to a worker, and its tasks follow it there.
        workers = [list(devices)[strip * len(devices) // STRIPS] for strip in range(STRIPS)]
        strips = [
            await client.scatter(aiodev.asarray(part, device="cpu"), workers=[worker])
            for part, worker in zip(np.split(plate, STRIPS), workers, strict=True)
        ]
        after = aiodev.dask.stencil(client, step, strips, steps=STEPS, exchange=8)
        parts = [await strip.numpy() for strip in await client.gather(after)]
        return np.concatenate(parts), devices


async def on_one_device(plate):
    """The same steps without a cluster."""
    async with aiodev.device("cpu"):
        u = aiodev.asarray(plate)
        for _ in range(STEPS):
            u = aiodev.kernels.concat([u[:1], step(u), u[-1:]])
        return await u.numpy()


async def main():
    plate = np.zeros((ROWS, COLUMNS), np.float32)
    plate[0] = plate[40:80, 30:100] = plate[130:150, 10:45] = 1.0
    cooled, devices = await on_a_cluster(plate)
    alone = await on_one_device(plate)
    print(f"{len(devices)} workers, {STRIPS} strips, {STEPS} steps; the bits of one device: {np.array_equal(cooled, alone)}")
    return plate, cooled


if __name__ == "__main__":
    plate, cooled = asyncio.run(main())
    figure, (before, after) = plt.subplots(1, 2, figsize=(8, 5.5), sharey=True)
    before.imshow(plate, "inferno", vmin=0, vmax=1)
    before.set_title("at first")
    picture = after.imshow(cooled, "inferno", vmin=0, vmax=1)
    after.set_title(f"after {STEPS} steps")
    for border in range(ROWS // STRIPS, ROWS, ROWS // STRIPS):
        after.axhline(border - 0.5, color="white", linewidth=0.6, linestyle=":")
    figure.colorbar(picture, ax=(before, after), label="temperature")
    plt.show()

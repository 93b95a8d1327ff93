"""What a type checker makes of completions; ``test_typing.py`` has mypy read it. It is not run."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import assert_type

import aiodev


@aiodev.kernel
def nothing(i: int) -> None: ...


def parse(text: str) -> int:
    return int(text)


async def fetch() -> bytes:
    return b""


async def main(stream: aiodev.Stream, array: aiodev.Array, future: concurrent.futures.Future[str]) -> None:
    call = stream.call(parse, "1")
    assert_type(call, aiodev.Completion[int])
    assert_type(await call, int)
    assert_type(call.result(), int)
    assert_type(call.exception(), BaseException | None)
    assert_type(call.synchronize_blocking(), int)
    assert_type(await stream.wait_future(fetch()), bytes)
    assert_type(await stream.wait_future(future), str)
    assert_type(nothing[1](), aiodev.Completion[None])
    assert_type(nothing.bind(1)(), aiodev.Completion[None])
    assert_type(stream.copy(array, array), aiodev.Completion[None])
    assert_type(array.copy_from(array), aiodev.Completion[None])
    assert_type(await asyncio.wait_for(call, 1), int)
    assert_type(await asyncio.gather(call, stream.wait_future(fetch())), tuple[int, bytes])
    async for done in aiodev.as_completed([call]):
        assert_type(done, aiodev.Completion[int])
    call.add_done_callback(lambda done: print(done.result() + 1))
    stream.wait(call)
    timeline, value = call  # type: ignore[misc]

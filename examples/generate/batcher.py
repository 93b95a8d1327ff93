"""Continuous batching: texts join and leave between two steps, and whoever is there goes one character further with each."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from types import TracebackType

import numpy as np
from model import LONGEST, NOTHING, Model, Slots
from text import decode, encode

import aiodev

__all__ = ["MOST_RUNNING", "MOST_WAITING", "Batcher", "Closed", "Full", "Text"]

#: Sizes of batches: each is a graph. A batch of another size leaves rows of the next one empty.
SIZES = 1, 2, 4, 8, 16, 32
MOST_RUNNING, MOST_WAITING = SIZES[-1], 64


class Full(Exception):
    """As many texts wait as may."""


class Closed(Exception):
    """The service is shutting down."""


class Text:
    """A text on its way: iterated over, it gives what is added, in pieces of one character or as many as have come meanwhile.

    It is a block, too, at whose end it leaves the batch, whole or not.
    """

    def __init__(self, batcher: Batcher, prompt: str, length: int, temperature: float, seed: int) -> None:
        self.prompt, self.temperature, self.seed = encode("\n" + prompt), temperature, seed
        self.left = min(length, LONGEST - self.prompt.size)  #: characters to come
        self.slot = NOTHING
        self._batcher = batcher
        self._added: list[int] = []
        self._error: BaseException | None = None
        self._changed = asyncio.Event()

    def add(self, code: int) -> None:
        """One more character."""
        self._added.append(code)
        self.left -= 1
        self._changed.set()

    def fail(self, error: BaseException) -> None:
        """No more will come."""
        self.left, self._error = 0, error
        self._changed.set()

    def __enter__(self) -> Text:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.left = 0
        self._batcher.forget(self)

    def __aiter__(self) -> Text:
        return self

    async def __anext__(self) -> str:
        while not self._added:
            if self._error is not None:
                raise self._error
            if not self.left:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        added, self._added = self._added, []
        return decode(added)


class Batcher:
    """Continues texts, up to ``MOST_RUNNING`` at a time; others wait, up to ``MOST_WAITING``."""

    def __init__(self, model: Model) -> None:
        self.added = self.steps = 0
        self.gaps: deque[float] = deque(maxlen=10_000)  #: seconds between characters of a text, lately
        self._last: float | None = None
        self._model = model
        self._slots = Slots(model, MOST_RUNNING)
        self._rows = aiodev.full(MOST_RUNNING, NOTHING, np.int32)
        self._graphs: dict[int, tuple[aiodev.Graph, aiodev.Array]] = {}
        self._free = list(range(MOST_RUNNING))
        self._running: list[Text] = []
        self._waiting: deque[Text] = deque()
        self._arrived = asyncio.Event()
        self._closing = False

    @property
    def running(self) -> int:
        """Texts in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Texts that have no place in it yet."""
        return len(self._waiting)

    async def start(self) -> None:
        """Capture a step for each size of a batch, and have everything compiled; on the current stream, where all will run."""
        stream, pool = aiodev.current_stream(), None
        for size in SIZES:
            async with aiodev.capture(stream, pool) as graph:
                tokens = self._model.submit(self._rows[:size], self._slots)
            self._graphs[size], pool = (graph, tokens), graph.pool
            await graph.replay()
        self._slots.begin(0, encode("\n"), 0.0, 0)
        await aiodev.synchronize()
        self._serving = asyncio.create_task(self._serve())

    def join(self, prompt: str, *, length: int, temperature: float, seed: int) -> Text:
        """A text that begins with ``prompt``, and becomes ``length`` characters longer, or as long as there is room for.

        Raises:
            ValueError: the prompt is as long as a text may be.
            Full: as many wait as may.
            Closed: the service is shutting down.
        """
        if len(prompt) + 1 >= LONGEST:
            raise ValueError(f"expected a prompt of fewer than {LONGEST - 1} characters")
        if self._closing:
            raise Closed
        if len(self._waiting) == MOST_WAITING:
            raise Full
        text = Text(self, prompt, length, temperature, seed)
        self._waiting.append(text)
        self._arrived.set()
        return text

    def forget(self, text: Text) -> None:
        """Take a text off the queue, if it is there; from the batch it is taken after the step under way."""
        if text in self._waiting:
            self._waiting.remove(text)

    async def _serve(self) -> None:
        while True:
            self._change_batch()
            if not self._running:
                self._last = None
                if self._closing:
                    return
                self._arrived.clear()
                await self._arrived.wait()
                continue
            try:
                tokens = await self._step()
            except Exception as error:  # whatever it is, those who wait must hear of it
                for text in self._running:
                    text.fail(error)
                continue
            self.steps += 1
            now = time.perf_counter()
            if self._last is not None:
                self.gaps.append(now - self._last)
            self._last = now
            for text, code in zip(self._running, tokens.tolist(), strict=False):
                if code != NOTHING and text.left:
                    text.add(code)
                    self.added += 1

    def _change_batch(self) -> None:
        """Let go of texts that are whole, or that nobody waits for, and take others in."""
        staying = [text for text in self._running if text.left]
        self._free += [text.slot for text in self._running if not text.left]
        while self._free and self._waiting:
            text = self._waiting.popleft()
            text.slot = self._free.pop()
            self._slots.begin(text.slot, text.prompt, text.temperature, text.seed)
            staying.append(text)
        if staying != self._running:
            rows = np.full(MOST_RUNNING, NOTHING, np.int32)
            rows[: len(staying)] = [text.slot for text in staying]
            self._rows.copy_from(rows)
            self._running = staying

    async def _step(self) -> np.ndarray:
        graph, tokens = self._graphs[next(size for size in SIZES if size >= len(self._running))]
        graph.replay()
        return await tokens.numpy()

    async def aclose(self) -> None:
        """Finish the texts that are on their way, and take no more."""
        self._closing = True
        self._arrived.set()
        await self._serving

"""The service that writes text: what it says, to whom, and until when; in this process, over HTTP, and in a browser."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from served import browser, end, interrupt, metric, start, wait_until_healthy

import aiodev

GENERATE = Path(__file__).resolve().parents[1] / "examples" / "generate"
sys.path.insert(0, str(GENERATE))
try:
    import app as service
    import batcher as batching
    import fit as fitting
    import model as modelling
    from text import SYMBOLS, decode, encode
finally:
    sys.path.remove(str(GENERATE))

#: Of a text that is to be whole, however busy the machine is.
WHOLE = {"timeout_ms": 60_000}
WEIGHTS = modelling.load_weights()


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Any]:
    """A batcher."""
    async with aiodev.device("cpu"), aiodev.Stream():
        batcher = batching.Batcher(modelling.Model(WEIGHTS))
        await batcher.start()
        yield batcher
        await batcher.aclose()


async def read(text: Any) -> str:
    """All of a text."""
    with text:
        return "".join([added async for added in text])


def continued_by_numpy(prompt: str, length: int) -> str:
    """The best character, again and again."""
    heads, codes, keys, values = modelling.HEADS, encode("\n" + prompt).tolist(), {}, {}
    given = len(codes)

    def norm(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean() + 1e-6)

    for place in range(given + length - 1):
        x = WEIGHTS["table"][codes[place]].astype(np.float64)
        first = max(0, place + 1 - modelling.LENGTH)
        for layer, (qkv, out, up, down) in enumerate(zip(*map(WEIGHTS.get, ("qkv", "out", "up", "down")), strict=True)):
            query, keys[layer, place], values[layer, place] = (norm(x) @ qkv).reshape(3, heads, -1)
            seen = range(first, place + 1)
            fits = np.stack([(keys[layer, k] * query).sum(-1) for k in seen], axis=1) / np.sqrt(query.shape[1])
            fits += 2.0 ** (-8 * (np.arange(heads)[:, None] + 1) / heads) * np.arange(first - place, 1)
            shares = np.exp(fits - fits.max(1, keepdims=True))
            shares /= shares.sum(1, keepdims=True)
            x = x + np.einsum("ht,thd->hd", shares, [values[layer, k] for k in seen]).reshape(-1) @ out
            x = x + np.maximum(norm(x) @ up, 0) ** 2 @ down
        if place + 1 >= given:
            codes.append(int((norm(x) @ WEIGHTS["head"]).argmax()))
    return decode(codes[given:])


async def test_greedy_text_is_numpys() -> None:
    """At temperature 0 each character is the one that NumPy finds best in double precision, beyond the ring's end, too."""
    async with running() as batcher:
        for prompt, length in (("The ", 40), ("", modelling.LENGTH + 30)):
            written = await read(batcher.join(prompt, length=length, temperature=0.0, seed=0))
            assert written == continued_by_numpy(prompt, length)


async def test_text_is_what_was_learnt() -> None:
    """At temperature 0 each character is the one that the model finds best by which the weights were learnt."""
    async with running() as batcher:
        text = await read(batcher.join("", length=modelling.LENGTH - 1, temperature=0.0, seed=0))
        codes = encode("\n" + text)
        bias = aiodev.asarray(fitting.attention_bias())
        scores = await fitting.scores_of(fitting.on_device(WEIGHTS), bias, aiodev.asarray(codes[None])).detach().numpy()
    assert (scores.argmax(1)[:-1] == codes[1:]).all()


async def test_same_seed_same_text_in_any_batch() -> None:
    """What a seed gives alone it gives in a batch of any size, whoever joins and leaves meanwhile."""
    async with running() as batcher:
        asked = [
            {"prompt": "It " * (k % 5), "length": 20 + 11 * k, "temperature": 0.3 + 0.05 * k, "seed": k} for k in range(24)
        ]
        alone = [await read(batcher.join(**each)) for each in asked]
        together = await asyncio.gather(*(read(batcher.join(**each)) for each in asked))
        again = await read(batcher.join(**asked[7]))
    assert alone == together
    assert len(set(alone)) == len(alone) and again == alone[7]
    assert [len(text) for text in alone] == [each["length"] for each in asked]


async def test_text_reads_as_english() -> None:
    """Most words that it writes are words of the text that it has learnt."""
    known = set(re.findall("[a-z]+", " ".join(topics.values()).lower()))
    async with running() as batcher:
        texts = [batcher.join("The ", length=400, temperature=0.5, seed=seed) for seed in range(8)]
        words = re.findall(r"\b[a-z]{2,}\b", " ".join(await asyncio.gather(*map(read, texts))).lower())
    assert np.mean([word in known for word in words]) > 0.8


async def test_leaving_frees_the_slot_and_others_go_on() -> None:
    """Who leaves a full batch makes room for who waits; texts beside it are what they are without it."""
    asked = {"prompt": "", "length": 300, "temperature": 0.7}
    async with running() as batcher:
        alone = await read(batcher.join(**asked, seed=1))
        texts = [batcher.join(**asked, seed=seed) for seed in range(batching.MOST_RUNNING)]
        late = batcher.join(**asked, seed=1)
        await anext(texts[0])
        assert (batcher.running, batcher.waiting) == (batching.MOST_RUNNING, 1)
        others = [asyncio.create_task(read(text)) for text in texts[1:]]
        with texts[0]:
            pass
        assert await read(late) == alone
        assert (await asyncio.gather(*others))[0] == alone
    assert (batcher.running, batcher.waiting) == (0, 0)


async def test_room_for_a_text_bounds_it() -> None:
    """A text ends where there is no more room for it; a prompt that leaves none is refused."""
    async with running() as batcher:
        asked = {"length": 10**6, "temperature": 0.0, "seed": 0}
        prompt = "It " * ((modelling.LONGEST - 10) // 3)
        assert len(await read(batcher.join(prompt, **asked))) == modelling.LONGEST - 1 - len(prompt)
        with pytest.raises(ValueError, match="fewer than"):
            batcher.join("x" * (modelling.LONGEST - 1), **asked)


async def test_who_waits_may_leave() -> None:
    """A text that waits is forgotten at once, and its place among those that wait is free."""
    async with running() as batcher:
        count = batching.MOST_RUNNING + batching.MOST_WAITING
        asked = {"prompt": "", "length": 1000, "temperature": 0.7, "seed": 1}
        texts = [batcher.join(**asked) for _ in range(batching.MOST_WAITING)]
        with pytest.raises(batching.Full):
            batcher.join(**asked)
        await anext(texts[0])
        texts += [batcher.join(**asked) for _ in range(count - len(texts))]
        with pytest.raises(batching.Full):
            batcher.join(**asked)
        with texts[-1]:
            pass
        with batcher.join(**asked):
            assert batcher.waiting == batching.MOST_WAITING
        for text in texts:
            with text:
                pass


async def test_failed_step_reaches_its_texts_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts in a step that fails end with the error; later ones are written."""
    async with running() as batcher:
        step = batcher._step

        async def fail() -> None:
            monkeypatch.setattr(batcher, "_step", step)
            raise ZeroDivisionError

        monkeypatch.setattr(batcher, "_step", fail)
        asked = {"prompt": "", "length": 10, "temperature": 0.0, "seed": 1}
        with pytest.raises(ZeroDivisionError):
            await read(batcher.join(**asked))
        assert len(await read(batcher.join(**asked))) == 10


async def test_closing_finishes_texts() -> None:
    """Texts that are on their way are finished; new ones are refused."""
    async with running() as batcher:
        text = batcher.join("", length=50, temperature=0.7, seed=1)
        closing = asyncio.create_task(batcher.aclose())
        assert len(await read(text)) == 50
        await closing
        with pytest.raises(batching.Closed):
            batcher.join("", length=50, temperature=0.7, seed=1)


FITTING = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import fit
fit.read_paragraphs = lambda: ["A paragraph of %d words, which is repeated." % n for n in range(3000)]
fit.save_weights(asyncio.run(fit.fit(2)), Path(sys.argv[2]))
"""


@pytest.mark.parametrize(
    "setting", ["AIODEV_CPU_DEVICES=2", pytest.param("AIODEV_CPU_THREADS=1", marks=pytest.mark.exhaustive)]
)
def test_weights_follow_from_the_seed(setting: str, tmp_path: Path) -> None:
    """The program that makes them writes the same bytes on half the cores, with one worker, and beside other work."""
    found = []
    for variable, number in (setting.split("="), ("AIODEV_CPU_THREADS", "3")):
        path = tmp_path / f"{number}.npz"
        command = [sys.executable, "-c", FITTING, str(GENERATE), str(path)]
        done = subprocess.run(command, env=os.environ | {variable: number}, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        found.append(path.read_bytes())
    assert found[0] == found[1]


def test_stored_weights_are_small_and_close(tmp_path: Path) -> None:
    """Weights that are kept and read again differ by half a step of their column's 8 bits."""
    matrix = np.random.default_rng(1).standard_normal((3, 64, 32)).astype(np.float32)
    modelling.save_weights({"up": matrix}, tmp_path / "weights.npz")
    (found,) = modelling.load_weights(tmp_path / "weights.npz").values()
    assert (abs(found - matrix) <= np.abs(matrix).max(1, keepdims=True) / 254 + 1e-6).all()
    assert (GENERATE / "weights.npz").stat().st_size < 1 << 20


def test_characters_have_codes() -> None:
    """What is encoded is decoded; characters that the model does not know are left out."""
    assert decode(encode(SYMBOLS)) == SYMBOLS
    assert decode(encode("naïve\tA\n")) == "naveA\n"


# Over HTTP


@contextlib.asynccontextmanager
async def client() -> AsyncIterator[tuple[httpx.AsyncClient, Any]]:
    """A client of the service in this process, and its batcher."""
    app = service.make_app()
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://service", timeout=60) as asking:
            yield asking, app.state.batcher


def events(body: str) -> tuple[str, str]:
    """The text of a stream of events, and why it ended."""
    *texts, last = [event.split("\n") for event in body.strip().split("\n\n")]
    assert all(len(event) == 1 for event in texts) and last[0] == "event: end"
    said = "".join(json.loads(event[0].removeprefix("data: "))["text"] for event in texts)
    return said, json.loads(last[1].removeprefix("data: "))["reason"]


async def test_answer_is_events_of_the_text() -> None:
    """The stream has all of the text that the seed gives, and says that it is whole; another time it is the same."""
    async with client() as (asking, batcher):
        asked = {"prompt": "The ", "seed": 5, "length": 80, "temperature": 0.7}
        answer = await asking.get("/generate", params=WHOLE | asked)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert events(answer.text) == (await read(batcher.join(**asked)), "length")
        assert (await asking.get("/health")).json() == {"status": "ok", "device": "cpu:0", "running": 0}
        assert "characters_total 160\n" in (await asking.get("/metrics")).text


async def test_a_deadline_ends_the_stream() -> None:
    """A text whose time is over ends as far as it is, and leaves the batch."""
    async with client() as (asking, batcher):
        answer = await asking.get("/generate", params={"timeout_ms": 1e-6, "length": 1500})
        said, reason = events("\n\n" + answer.text)
        assert len(said) < 1500 and reason == "timeout"
    assert batcher.added < 1500


async def test_stream_whose_reader_goes_away_leaves_the_batch() -> None:
    """A connection that ends while a piece is on its way ends the text, and its slot is free."""
    app = service.make_app()
    gone, never = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            gone.set()
            await never.wait()

    scope = {"type": "http", "method": "GET", "path": "/generate", "query_string": b"length=1500", "headers": []}
    async with app.router.lifespan_context(app):
        await app(scope, receive, send)
    assert app.state.batcher.running == 0 and 0 < app.state.batcher.added < 1500


async def test_too_many_are_told_so() -> None:
    """Where as many wait as may, the answer is 503, and when to ask again."""
    async with client() as (asking, batcher):
        texts = [batcher.join("", length=10, temperature=0.0, seed=0) for _ in range(batching.MOST_WAITING)]
        answer = await asking.get("/generate")
        assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
        await asyncio.gather(*map(read, texts))
        assert (await asking.get("/generate")).status_code == 200


@pytest.mark.parametrize(
    "asked", [{"seed": "x"}, {"seed": -1}, {"temperature": "nan"}, {"length": 0}, {"prompt": "x" * 501}, {"timeout_ms": 1e9}]
)
async def test_malformed_requests(asked: dict[str, Any]) -> None:
    """They are told what was expected."""
    async with client() as (asking, _):
        answer = await asking.get("/generate", params=asked)
        assert answer.status_code == 422 and "a seed from 0 on" in answer.json()["error"]


# As a program


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A running service."""
    process, address = start(GENERATE)
    wait_until_healthy(address)
    yield address
    assert end(process) in (0, -signal.SIGTERM)


def test_many_clients_at_once_get_their_texts(url: str) -> None:
    """Forty streams, more than a batch holds, each have the text of their seed."""

    async def ask_all() -> list[tuple[str, str]]:
        async with httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=40)) as asking:
            asked = [asking.get("/generate", params=WHOLE | {"seed": k // 2, "length": 200}) for k in range(40)]
            return [events(answer.raise_for_status().text) for answer in await asyncio.gather(*asked)]

    answers = asyncio.run(ask_all())
    assert answers[::2] == answers[1::2]
    assert {(len(said), reason) for said, reason in answers} == {(200, "length")}


async def test_clients_that_go_away(url: str) -> None:
    """Their texts are given up, and others are written to their ends."""
    place = urlsplit(url)
    for _ in range(5):
        reading, writing = await asyncio.open_connection(place.hostname, place.port)
        writing.write(b"GET /generate?length=1500 HTTP/1.1\r\nHost: x\r\n\r\n")
        await reading.readuntil(b"data: ")
        writing.transport.abort()
    answer = await asyncio.to_thread(httpx.get, f"{url}/generate", params=WHOLE | {"length": 200}, timeout=60)
    said, reason = events(answer.text)
    assert (len(said), reason) == (200, "length")
    while await asyncio.to_thread(metric, url, "texts_running"):
        pass


async def test_shutdown_finishes_streams() -> None:
    """Streams that have begun when the signal comes have all of their texts."""
    process, address = await asyncio.to_thread(start, GENERATE)
    async with (
        httpx.AsyncClient(base_url=address, timeout=60) as asking,
        asking.stream("GET", "/generate", params=WHOLE | {"length": 1000}) as answer,
    ):
        pieces = answer.aiter_text()
        body = await anext(pieces)
        process.send_signal(signal.SIGTERM)
        body += "".join([piece async for piece in pieces])
    assert len(events(body)[0]) == 1000
    assert await asyncio.to_thread(process.wait, 30) in (0, -signal.SIGTERM)
    process.stdout.close()


def test_ctrl_c_ends_it_without_a_traceback() -> None:
    """In good order, and quietly."""
    process, address = start(GENERATE, stderr=subprocess.PIPE)
    wait_until_healthy(address)
    status, _, errors = interrupt(process)
    assert (status, errors) == (0, "")


def test_the_page_writes(url: str, tmp_path: Path) -> None:
    """In a browser the page has a text written when it is opened, and says how fast."""
    shown = browser(tmp_path / "profile", url, "--virtual-time-budget=5000")
    assert re.search(r'id="text"[^>]*><b>The function returns</b>[^<]{50}', shown)
    assert re.search(r"600 characters, \d+ a second", shown)

"""The service of the examples, as its users meet it: over HTTP, and in a browser."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from served import browser, end, interrupt, metric, start, wait_until_healthy
from sklearn.datasets import load_digits

SERVICE = Path(__file__).resolve().parents[1] / "examples" / "service"
IMAGES = load_digits().data


def load_network() -> Any:
    """examples/service/network.py, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("service_network", SERVICE / "network.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """scikit-learn's own, whose weights the service is given."""
    return load_network().fit()


@pytest.fixture(scope="module")
def environment(classifier: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """That of a service with these weights."""
    path = tmp_path_factory.mktemp("model") / "digits.npz"
    load_network().save_weights(classifier, path)
    return os.environ | {"DIGITS_MODEL": str(path)}


@pytest.fixture(scope="module")
def url(environment: dict[str, str]) -> Iterator[str]:
    """A running service."""
    process, address = start(SERVICE, env=environment)
    wait_until_healthy(address)
    yield address
    assert end(process) in (0, -signal.SIGTERM)


async def ask_all(url: str, images: np.ndarray) -> np.ndarray:
    """Every image's probabilities, asked for at once."""
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=64)) as client:
        bodies = [{"pixels": image.tolist(), "timeout_ms": 10_000} for image in images]
        answers = await asyncio.gather(*(client.post("/predict", json=body) for body in bodies))
    return np.array([answer.raise_for_status().json()["probabilities"] for answer in answers])


async def test_predictions_are_scikit_learns(url: str, classifier: Any) -> None:
    """For many requests at once, in batches as they come, the probabilities are those of the library that fitted them."""
    images = IMAGES[:400]
    probabilities = await ask_all(url, images)
    expected = classifier.predict_proba(images / 16)
    assert np.abs(probabilities - expected).max() < 1e-4
    assert (probabilities.argmax(1) == expected.argmax(1)).all()
    assert metric(url, "digits_batch_size_mean") > 1.0


def test_a_deadline_that_cannot_be_kept(url: str) -> None:
    """It is answered as a timeout, and the service goes on."""
    body: dict[str, object] = {"pixels": IMAGES[0].tolist(), "timeout_ms": 1e-6}
    assert httpx.post(f"{url}/predict", json=body).status_code == 504
    body["timeout_ms"] = 5000
    assert httpx.post(f"{url}/predict", json=body).json()["digit"] == 0


@pytest.mark.parametrize("body", ["", "[]", '{"pixels": [1]}', '{"pixels": "x"}', '{"pixels": null, "timeout_ms": 5}'])
def test_a_malformed_request(url: str, body: str) -> None:
    """It is told what was expected."""
    answer = httpx.post(f"{url}/predict", content=body)
    assert answer.status_code == 422 and "64 numbers" in answer.json()["error"]


def test_clients_that_go_away(url: str) -> None:
    """What they asked for is dropped, and nothing is left waiting."""
    body = json.dumps({"pixels": IMAGES[0].tolist()}).encode()
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    place = urlsplit(url)
    for _ in range(50):
        with socket.create_connection((place.hostname or "", place.port or 0)) as connection:
            connection.sendall(head + body)
    assert httpx.post(f"{url}/predict", json=json.loads(body)).json()["digit"] == 0
    assert metric(url, "digits_waiting") == 0


async def test_shutdown_answers_what_was_asked(environment: dict[str, str]) -> None:
    """Requests that are in when the signal comes get their answers."""
    process, address = start(SERVICE, env=environment)
    await asyncio.to_thread(wait_until_healthy, address)
    async with httpx.AsyncClient(base_url=address, timeout=60) as client:
        body = {"pixels": IMAGES[0].tolist(), "timeout_ms": 10_000}
        asked = [asyncio.ensure_future(client.post("/predict", json=body)) for _ in range(20)]
        first, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert first
        status = await asyncio.to_thread(end, process)
        answers = await asyncio.gather(*asked, return_exceptions=True)
    assert status in (0, -signal.SIGTERM)
    answered = [answer for answer in answers if isinstance(answer, httpx.Response)]
    # A connection that the service had not accepted when the signal came is refused; no answer is cut short.
    assert all(answer.status_code in (200, 503) for answer in answered)
    assert all(isinstance(answer, httpx.Response | httpx.TransportError) for answer in answers)
    assert sum(answer.status_code == 200 for answer in answered) >= len(first)


def test_ctrl_c_ends_it_without_a_traceback(environment: dict[str, str]) -> None:
    """In good order, and quietly."""
    process, address = start(SERVICE, env=environment, stderr=subprocess.PIPE)
    wait_until_healthy(address)
    status, _, errors = interrupt(process)
    assert (status, errors) == (0, "")


def test_the_page_draws_and_asks(url: str, tmp_path: Path) -> None:
    """In a browser, a stroke down the middle of the board is a digit, with its latency."""
    page = httpx.get(url).text
    driver = page.replace(
        "clear();\n</script>",
        "clear();\nat = e => e.at; board.setPointerCapture = () => 0;\n"
        "board.onpointerdown({at: [128, 30]}); board.onpointermove({at: [128, 225]}); board.onpointerup({at: [128, 225]});\n"
        "</script>",
    ).replace('fetch("predict"', f'fetch("{url}/predict"')
    assert driver != page
    (tmp_path / "page.html").write_text(driver)
    shown = browser(
        tmp_path / "profile", (tmp_path / "page.html").as_uri(), "--disable-web-security", "--virtual-time-budget=5000"
    )
    assert re.search(r'id="digit"[^>]*>1<', shown)
    assert re.search(r"ms of it in the service", shown)

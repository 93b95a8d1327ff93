"""Tables and pictures of profiles."""

from __future__ import annotations

import asyncio
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import aiodev
from aiodev import profiler
from aiodev.testing import Latch

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def prof() -> profiler.Profile:
    """A profile of some copies on two streams, one of which waits for the other."""

    async def main() -> profiler.Profile:
        first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
        async with profiler.profile() as prof:
            x, y = aiodev.empty(1 << 16, device="cpu"), aiodev.empty(1 << 16, device="cpu")
            with Latch(first):
                for _ in range(5):
                    first.copy(x, np.ones(1 << 16))
                second.wait_stream(first)
            await asyncio.sleep(0.005)
            second.copy(y, x)
            second.call(lambda: None)
            await second.synchronize()
        prof.names[first.stream_id] = "<copies & more>"
        return prof

    return asyncio.run(main())


def test_table_has_a_row_for_each_kind(prof) -> None:
    """Work first, longest in all before others; then waits; then streams and the loop's lag."""
    lines = prof.table().splitlines()
    assert lines[0].split() == ["operation", "count", "total", "mean", "longest", "delay", "bytes", "not", "done"]
    assert lines[1].split()[:2] == ["copy", "6"]
    assert "3 MiB" in lines[1]
    assert sorted(line.split()[0].strip(":") for line in lines[2:5]) == ["call", "gate", "wait"]
    assert lines[6].startswith("<copies & more>: 6 operations, busy ")
    assert lines[-1].startswith("loop lag: median ")


def test_table_has_as_many_rows_as_asked_for(prof) -> None:
    """``rows`` bounds the table, which says how many more there are."""
    assert "… and 3 more" in prof.table(rows=1)
    assert "more" not in prof.table(rows=0).splitlines()[-4]
    with pytest.raises(ValueError, match="rows"):
        prof.table(rows=-1)


def test_svg_shows_streams_operations_and_waits(prof, tmp_path) -> None:
    """The picture is well-formed, with the streams' names, a bar for each copy or row of copies, and an arrow for the wait."""
    root = ElementTree.fromstring(prof.timeline(tmp_path / "timeline.svg").read_text())
    assert root.tag == f"{SVG}svg"
    texts = {element.text for element in root.iter(f"{SVG}text")}
    assert {"<copies & more>", "copy", "waits", "memory in use", "lag of the loop"} <= texts
    titles = [element.text or "" for element in root.iter(f"{SVG}title")]
    assert any("copy" in title and "Task-" in title for title in titles)
    width = float(root.get("viewBox", "").split()[2])
    for bar in root.iter(f"{SVG}rect"):
        assert 0 <= float(bar.get("x", "")) <= float(bar.get("x", "")) + float(bar.get("width", "")) <= width


def test_short_operations_are_drawn_as_one() -> None:
    """A million operations make a picture of a bounded size: alike ones that cannot be told apart are one bar."""

    async def main() -> str:
        stream, x, one = aiodev.Stream("cpu"), aiodev.empty(1, device="cpu"), np.ones(1)
        async with profiler.profile() as prof:
            for _ in range(5000):
                stream.copy(x, one)
            await stream.synchronize()
        return prof._repr_svg_()

    picture = asyncio.run(main())
    assert picture.count("<rect") < 3000
    assert " × copy" in picture


def test_png_is_the_same_picture(prof, tmp_path) -> None:
    """A path that ends with .png gives a PNG, twice as large."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    with image.open(prof.timeline(tmp_path / "timeline.png")) as picture:
        assert picture.format == "PNG"
        assert picture.width == 2000
        assert len(picture.getcolors(1 << 20)) > 10


def test_png_without_pillow_says_what_to_do(prof, tmp_path, monkeypatch) -> None:
    """Without Pillow a PNG is refused, with what to install."""
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ModuleNotFoundError, match="Pillow"):
        prof.timeline(tmp_path / "timeline.png")


def test_other_formats_are_refused(prof, tmp_path) -> None:
    """A picture is an SVG or a PNG."""
    with pytest.raises(ValueError, match="svg"):
        prof.timeline(tmp_path / "timeline.pdf")


@pytest.mark.parametrize("path", [3, None, b"timeline.svg"])
def test_paths_that_are_none(prof, path) -> None:
    """What is no path is refused by name."""
    with pytest.raises(TypeError, match="path"):
        prof.timeline(path)
    with pytest.raises(TypeError, match="path"):
        prof.export_chrome_trace(path)


def test_notebooks_show_picture_and_table(prof) -> None:
    """In a notebook a profile is its picture and its table, as text that cannot be taken for markup."""
    shown = prof._repr_html_()
    assert shown.startswith("<svg ")
    assert "&lt;copies &amp; more&gt;: 6 operations" in shown


def test_empty_profile_has_a_picture() -> None:
    """A block in which nothing happens has a picture and a table, too."""

    async def main() -> profiler.Profile:
        async with profiler.profile() as prof:
            pass
        return prof

    prof = asyncio.run(main())
    assert ElementTree.fromstring(prof._repr_svg_()).tag == f"{SVG}svg"
    assert prof.table()

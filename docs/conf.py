"""Sphinx configuration. Nothing here needs the network: no inventories, no remote images."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from pathlib import Path

import numpy as np
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import aiodev
from aiodev import kernels, profiler
from aiodev._core.config import Settings
from aiodev.kernels.elementwise.rows import TABLE
from aiodev.testing import Latch

sys.path.insert(0, str(Path(__file__).parent))  # for gallery_order

project = "aiodev"
author = "The aiodev developers"
copyright = f"2026, {author}"
release = aiodev.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_title = f"aiodev {release}"

#: Programs in folders of their own are not in the gallery, and have files of the same names.
suppress_warnings = ["sphinx_gallery.duplicate_filename"]

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "examples",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"/(digits|generate|service)/",
    "within_subsection_order": "gallery_order.ReadingOrder",
    "default_thumb_file": str(Path(__file__).parent / "static" / "thumbnail.png"),  # of examples without a picture
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "min_reported_time": 10**6,  # how long an example took is nobody's business, and another one at every build
    "abort_on_example_error": True,
    "plot_gallery": "True",
    "reset_modules": ("matplotlib",),
}

autodoc_mock_imports = ["opentelemetry", "prometheus_client", "safetensors"]  # of interop, whatever is installed
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# Without inventories nothing outside aiodev can be linked to; everything inside must be, but for private types of annotations.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!aiodev\.)\w+\..*"),
    (
        r"py:class",
        r"aiodev\.(_|testing\.\w+\.).*|Index|Workbench|Specialization|Timeline|P|R|dict\[str|Ax[ei]s|Operand",
    ),
]

doctest_global_setup = """
import asyncio
import numpy as np
import aiodev
"""
doctest_test_doctest_blocks = "default"
doctest_path = [str(Path(__file__).parent / "howto")]  # of the backend that is shown there


class SettingsTable(SphinxDirective):
    """``.. aiodev-settings::``, the environment variables as the code has them."""

    def run(self) -> list[nodes.Node]:
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 30 50 20", ""]
        lines += ["   * - variable", "     - meaning", "     - default"]
        for setting in dataclasses.fields(Settings):
            assert not isinstance(setting.default_factory, type(dataclasses.MISSING))
            value = setting.default_factory()
            default = ("auto" if value is None else str(value)).replace(str(Path.home()), "~")
            lines += [
                f"   * - ``{setting.metadata['name']}``",
                f"     - {setting.metadata['doc']}",
                f"     - ``{default}``" if default else "     - none",
            ]
        table = nodes.container()
        self.state.nested_parse(StringList(lines, source="settings"), self.content_offset, table)
        return table.children


class ElementwiseGroup(SphinxDirective):
    """``.. elementwise:: Arithmetic``, the functions that the table has under a heading."""

    required_arguments, final_argument_whitespace = 1, True

    def run(self) -> list[nodes.Node]:
        names = sorted(name for name, row in TABLE.items() if row.group == self.arguments[0])
        lines = [line for name in names for line in (f".. autofunction:: aiodev.kernels.{name}", "")]
        found = nodes.container()
        self.state.nested_parse(StringList(lines, source="elementwise"), self.content_offset, found)
        return found.children


def draw_snapshot(app: Sphinx) -> None:
    """Draw the picture of howto/memory from a program that has just that memory."""
    pool = aiodev.memory.MemoryPool("cpu")
    with pool, aiodev.Stream("cpu") as stream:
        layers = [aiodev.empty((1024, width), np.float32) for width in (1024, 512, 512, 256)]
        biases = [aiodev.empty(width, np.float32) for width in (1024, 512, 512, 256)]
        activations = [aiodev.empty((width, 768), np.float32) for width in (1024, 512, 640, 512)]
        small = [aiodev.empty(n, np.float32) for n in (30_000, 90_000, 60_000)]
        with Latch(stream):
            stream.copy(activations[2], layers[0][:640, :768])
            del activations[2], activations[1], small[1]
            snapshot = [s for s in aiodev.memory.memory_snapshot("cpu") if s["segment_pool_id"]]
    target = Path(app.srcdir) / "_generated"
    target.mkdir(exist_ok=True)
    (target / "snapshot.svg").write_text(aiodev.memory.draw_snapshot(snapshot))
    del layers, biases


@aiodev.kernel
def relax(i, steps, x):
    for _ in range(steps):
        x[i] = x[i] * 0.5 + 1.0


async def client(size: int, names: dict[int, str], number: int) -> None:
    """What howto/profile has three of."""
    copies, kernels = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    names |= {copies.stream_id: f"client {number}: copies", kernels.stream_id: f"client {number}: kernels"}
    with copies:
        x = aiodev.empty(size)
    for _ in range(3):
        copies.wait_stream(kernels)
        copies.copy(x, np.ones(size))
        kernels.wait_stream(copies)
        relax[size, kernels](50, x)
        await kernels.synchronize()


def draw_timeline(app: Sphinx) -> None:
    """Draw the picture of howto/profile from such a program."""

    async def main() -> profiler.Profile:
        await relax.compile(1, aiodev.empty(1, device="cpu"))
        async with profiler.profile() as prof, asyncio.TaskGroup() as tasks:
            for number in range(3):
                tasks.create_task(client(200_000, prof.names, number), name=f"client {number}")
        return prof

    asyncio.run(main()).timeline(Path(app.srcdir) / "_generated" / "timeline.svg")


def draw_graph(app: Sphinx) -> None:
    """Draw the picture of howto/graph from a replay of such a graph."""

    async def main() -> profiler.Profile:
        first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
        x, y = (aiodev.ones(100_000, device="cpu") for _ in range(2))
        await aiodev.synchronize("cpu")
        async with aiodev.capture(first) as graph:
            relax[100_000](20, x)
            second.wait_stream(first)
            with second:
                relax[100_000](50, y)
            relax[100_000](50, x)
            first.wait_stream(second)
            kernels.add(x, y, out=x)
        await graph.replay(first)
        async with profiler.profile() as prof:
            await graph.replay(first)
        return prof

    asyncio.run(main()).timeline(Path(app.srcdir) / "_generated" / "graph.svg")


def setup(app: Sphinx) -> None:
    draw_snapshot(app)
    draw_timeline(app)
    draw_graph(app)
    app.add_directive("aiodev-settings", SettingsTable)
    app.add_directive("elementwise", ElementwiseGroup)

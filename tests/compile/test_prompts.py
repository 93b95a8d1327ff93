"""Kernels that are typed at a prompt, or in a notebook's cell: compiled and kept like all others."""

from __future__ import annotations

import linecache
import subprocess
import sys
import types
from pathlib import Path

import pytest

import aiodev

PROMPT = """
import aiodev, numpy as np
from aiodev import profiler
from aiodev._kernel.compile.service import service
OFFSET = 2.0
@aiodev.kernel
def shifted(i, n, x, out):
    out[i] = x[i + n] + OFFSET

x, out = aiodev.asarray(np.arange(4.0)), aiodev.zeros(3)
shifted[3](1, x, out).synchronize_blocking(60)
found = profiler.counters()
print(out.numpy_blocking().tolist(), found["kernels_compiled"], found["kernels_loaded"], len(service.workers.processes))
"""

# What IPython does with a cell: its source is kept under a name that no file has.
NOTEBOOK = """
import linecache
cell = {cell!r}
filename = "/tmp/ipykernel_1/cell.py"
linecache.cache[filename] = (len(cell), None, cell.splitlines(True), filename)
exec(compile(cell, filename, "exec"))
"""


@pytest.mark.parametrize("place", ["prompt", "notebook"])
def test_kernels_of_a_prompt(place: str, tmp_path: Path, cache_without_kernels: Path) -> None:
    """A worker compiles them; a second session finds them in the cache."""
    root, cache = str(Path(aiodev.__file__).parents[1]), str(cache_without_kernels)
    environment = {"PYTHONPATH": root, "AIODEV_CACHE_DIR": cache, "PATH": ""}
    command, program = [sys.executable, "-iq"], PROMPT
    if place == "notebook":
        command, program = [sys.executable, "-c", NOTEBOOK.format(cell=PROMPT)], ""

    def run() -> str:
        done = subprocess.run(
            command, input=program, env=environment, capture_output=True, text=True, timeout=120, cwd=tmp_path
        )
        return done.stdout.strip() or done.stderr

    assert run() == "[3.0, 4.0, 5.0] 1 0 1"
    assert run() == "[3.0, 4.0, 5.0] 0 1 0"


def test_what_cannot_be_sent_is_compiled_here() -> None:
    """In a thread of this process, and not kept: a constant that refuses to be pickled."""
    from aiodev import profiler

    class Stubborn(int):
        def __reduce_ex__(self, protocol: object) -> str:
            raise TypeError("not to be sent")

    stubborn = (1, Stubborn(2))

    @aiodev.kernel
    def first(i, x):
        x[i] = stubborn[0]

    x = aiodev.zeros(2)
    before = profiler.counters()["kernels_compiled"]
    first[2](x).synchronize_blocking(60)
    assert x.numpy_blocking().tolist() == [1, 1]
    assert profiler.counters()["kernels_compiled"] == before + 1


PROGRAM = """
import enum
from collections import namedtuple
import aiodev, helpers
from aiodev import profiler

Pair = namedtuple("Pair", "low high")
PAIR = Pair(10, 20)

class Colour(enum.IntEnum):
    RED = 3

class BadRow(Exception):
    pass

@aiodev.kernel
def mixed(i, x):
    x[i] = helpers.scaled(x[i], PAIR.high) + Colour.RED.value
    if x[i] > 100:
        raise BadRow("too large", x[i])

x = aiodev.ones(2, device="cpu")
for _ in range(2):
    try:
        mixed[1](x).synchronize_blocking(60)
        print(x.numpy_blocking()[0], end=" ")
    except aiodev.KernelError as error:
        print(type(error.__cause__) is BadRow, error.__cause__.args, end=" ")
found = profiler.counters()
print(found["kernels_compiled"], found["kernels_loaded"])
"""


def test_a_program_s_own_classes_and_modules(tmp_path: Path, cache_without_kernels: Path) -> None:
    """A worker compiles what uses them, importing neither; it is found again, until what is taken from them changes."""
    root, cache = str(Path(aiodev.__file__).parents[1]), str(cache_without_kernels)
    environment = {"PYTHONPATH": root, "AIODEV_CACHE_DIR": cache, "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    (tmp_path / "program.py").write_text(PROGRAM)

    def run(factor: int) -> str:
        text = f"print('imported', flush=True)\nFACTOR = ({factor},)\ndef scaled(v, by):\n    return v * by * FACTOR[0]\n"
        (tmp_path / "helpers.py").write_text(text)
        command = [sys.executable, str(tmp_path / "program.py")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert not done.stderr.strip(), done.stderr
        return done.stdout.strip()

    assert run(1) == "imported\n23.0 True ('too large', 463.0) 1 0"
    assert run(1) == "imported\n23.0 True ('too large', 463.0) 0 1"
    assert run(2) == "imported\n43.0 True ('too large', 1723.0) 1 0"


CELLS = {
    "bad row": ["@aiodev.kernel", "def bad(i, x):", "    x[i] = 1", "    raise ValueError('bad row')"],
    "does not compile": ["@aiodev.kernel", "def bad(i, x):", "    x[i] = 1", "    x.nonsense()"],
}


@pytest.mark.parametrize("detail", CELLS)
@pytest.mark.parametrize(
    ("filename", "shown"),
    [("<ipython-input-{}-0123abcd>", "In[{}]"), ("/tmp/ipykernel_1/{}234.py", "In[{}]"), ("/tmp/ipykernel_2/{}.py", "a cell")],
)
def test_errors_name_cells(filename: str, shown: str, detail: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's, and the one that launched it, by the number that IPython gives them; and show both lines."""

    class Compiler:
        def format_code_name(self, name: str) -> tuple[str, str] | None:
            return ("Cell", f"In[{name[17]}]") if name.startswith("/tmp/ipykernel_1/") else None

    class Shell:
        compile = Compiler()

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = Shell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    namespace = {"aiodev": aiodev, "x": aiodev.zeros(3, device="cpu"), "__name__": "__main__"}
    for number, lines in ((3, CELLS[detail]), (4, ["", "done = bad[1](x)"])):
        name, source = filename.format(number), "\n".join(lines)
        monkeypatch.setitem(linecache.cache, name, (len(source), None, source.splitlines(True), name))
        exec(compile(source, name, "exec"), namespace)
    with pytest.raises(aiodev.KernelError) as caught:
        namespace["done"].synchronize_blocking(60)
    assert f"at {shown.format(3)}, line 4: `{CELLS[detail][3].strip()}`" in str(caught.value)
    assert f"launched at {shown.format(4)}, line 2: `done = bad[1](x)`" in str(caught.value)
    assert caught.value.location == f"{filename.format(3)}:4"
    assert caught.value.submitted_at == f"{filename.format(4)}:2"


def test_errors_name_files_as_they_are(tmp_path: Path) -> None:
    """A file can be opened: its line is not shown."""
    error = aiodev.KernelError("bad", "ValueError", location=f"{tmp_path}/module.py:3", submitted_at="C:\\program.py:4")
    assert str(error) == f"bad: ValueError (at {tmp_path}/module.py:3); launched at C:\\program.py:4"

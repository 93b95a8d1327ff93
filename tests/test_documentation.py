"""Every public name says what it is, shows how it is used, and has its place in the reference."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import operator
import re
from pathlib import Path

import pytest

from aiodev.dtypes import DTYPES
from aiodev.kernels.elementwise.rows import TABLE

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
MODULES = (
    "aiodev",
    "aiodev.dtypes",
    "aiodev.array_api",
    "aiodev.autograd",
    "aiodev.kernels",
    "aiodev.kernels.fft",
    "aiodev.kernels.linalg",
    "aiodev.kernels.random",
    "aiodev.lang",
    "aiodev.memory",
    "aiodev.optim",
    "aiodev.profiler",
    "aiodev.testing",
)
if importlib.util.find_spec("distributed") is not None:  # an extra
    MODULES += ("aiodev.dask",)

#: What modules need that are for other libraries.
FOREIGN = {
    "aiodev.interop.opentelemetry": "opentelemetry",
    "aiodev.interop.prometheus": "prometheus_client",
    "aiodev.interop.safetensors": "safetensors",
}

DIRECTIVE = re.compile(r"^\.\. (?:py:)?(currentmodule|automodule|auto\w+|function|data|class|elementwise)::\s*(.+?)\s*$")


def public_names() -> list[tuple[str, str]]:
    """(module, name) of all that is public; a name that several modules have is where it is documented."""
    found = {}
    for module in MODULES:
        loaded = importlib.import_module(module)
        for name in loaded.__all__:
            thing = getattr(loaded, name)
            if not inspect.ismodule(thing):
                found.setdefault(id(thing), (module, name))
    return sorted(found.values())


def described_names() -> set[str]:
    """Whatever docs/reference has an entry for, by its full name."""
    found = set()
    for page in REFERENCE.glob("*.rst"):
        module, lines = "", page.read_text().splitlines()
        for number, line in enumerate(lines):
            if (match := DIRECTIVE.match(line)) is None:
                continue
            directive, name = match.groups()
            if directive in ("currentmodule", "automodule"):
                module = name
            elif directive == "elementwise":
                found |= {f"{module}.{own}" for own, row in TABLE.items() if row.group == name}
            else:
                found.add(f"{module}.{name.removesuffix('()')}")
            options = "\n".join(lines[number + 1 : number + 4])
            if directive == "automodule" and re.match(r"   :members:", options):
                excluded = re.findall(r":exclude-members:(.*)", options)
                names = set(importlib.import_module(name).__all__) - set("".join(excluded).replace(",", " ").split())
                found |= {f"{name}.{member}" for member in names}
    return found


@pytest.mark.parametrize(("module", "name"), public_names(), ids=".".join)
def test_a_public_name_is_documented(module: str, name: str) -> None:
    """It has a docstring with an example that Sphinx executes, and so has every public member of a class a docstring."""
    thing = getattr(importlib.import_module(module), name)
    if not callable(thing) or not hasattr(thing, "__name__"):
        return  # an alias of types, or a tuple: the reference says what it is
    text = inspect.getdoc(thing) or ""
    assert text, f"{module}.{name} has no docstring"
    assert ">>>" in text, f"the docstring of {module}.{name} has no example"
    if inspect.isclass(thing):
        members = {key: value for key, value in vars(thing).items() if not key.startswith("_")}
        silent = [
            key
            for key, value in members.items()
            if isinstance(value, property | staticmethod | classmethod) or inspect.isfunction(value)
            if not inspect.getdoc(getattr(thing, key))
        ]
        assert not silent, f"members of {module}.{name} without a docstring: {', '.join(silent)}"


def test_the_reference_has_every_public_name() -> None:
    """An entry in docs/reference, by a directive of its own or as a member of a module."""
    described = described_names()
    missing = [f"{module}.{name}" for module, name in public_names() if f"{module}.{name}" not in described]
    assert not missing, f"not in docs/reference: {', '.join(missing)}"


def test_paths_that_the_readme_names_exist() -> None:
    """What it links to, and what its prose names in this repository."""
    text = re.sub(r"```.*?```", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    linked = [target for target in re.findall(r"\]\(([^)]+)\)", text) if "://" not in target]
    named = re.findall(r"`((?:docs|examples|tests|kernels|\.ci)/[\w./-]*)`", text)
    missing = [path for path in [*linked, *named] if not (ROOT / path.split("#")[0]).exists()]
    assert linked and not missing


def test_names_in_the_prose_exist() -> None:
    """``aiodev.…`` in the pages, the README and the examples can be imported or looked up."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.rst"), *(ROOT / "examples").rglob("*.py")]
    for folder in ("concepts", "howto", "design", "reference"):
        pages += (ROOT / "docs" / folder).glob("*.rst")
    names = {name for page in pages for name in re.findall(r"(?<![\w/.-])aiodev(?:\.[A-Za-z_]\w*)+", page.read_text())}
    names.discard("aiodev.backends")  # the group of entry points
    missing = [name for name in sorted(names) if not resolves(name)]
    assert len(names) > 50 and not missing


def resolves(name: str) -> bool:
    """Whether there is a module, or something in one, of that name."""
    module, rest = name, ""
    while module:
        with contextlib.suppress(ImportError, AttributeError):
            if module in FOREIGN and importlib.util.find_spec(FOREIGN[module]) is None:
                return True  # what it needs is not installed
            operator.attrgetter(rest)(importlib.import_module(module)) if rest else importlib.import_module(module)
            return True
        module, _, last = module.rpartition(".")
        rest = f"{last}.{rest}" if rest else last
    return False


def test_the_table_of_dtypes_is_the_one_of_the_code() -> None:
    """docs/reference/arrays.rst has every dtype, its bytes, its digits and what it is computed in."""
    text = (REFERENCE / "arrays.rst").read_text()
    lines = [line.split() for line in text.split("=\ndtype ", 1)[1].split("\n\n", 1)[0].splitlines() if "=" not in line][1:]
    shown = [(*line, line[0])[:4] for line in lines]
    expected = [(row.name, str(row.itemsize), str(row.digits), row.computed) for row in DTYPES.values()]
    assert shown == expected

"""The names of modules and what is public are made of the field's words: those of the glossary, and plain ones."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = (
    "aiodev",
    "aiodev.array_api",
    "aiodev.autograd",
    "aiodev.dtypes",
    "aiodev.interop",
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
#: Modules that need an extra: each with what has to be installed for it.
EXTRAS = {
    "aiodev.dask": "distributed",
    "aiodev.interop.opentelemetry": "opentelemetry",
    "aiodev.interop.prometheus": "prometheus_client",
    "aiodev.interop.safetensors": "safetensors",
}
MODULES += tuple(module for module, needed in EXTRAS.items() if importlib.util.find_spec(needed) is not None)
#: Of CamelCase, snake_case and CONSTANT_CASE; digits belong to no word.
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

#: Names that were, or might be, made up where the field has a word: no module, function, class or attribute is called so.
FIELD = {
    "aside": "quarantine, or what it is for",
    "attend": "help, or wait for an event",
    "attendant": "event waiter",
    "attended": "helped",
    "awaitables": "future bridge",
    "carry": "transfer, copy_into",
    "carrying": "transfer",
    "cuts": "tiling",
    "drawing": "sampling",
    "found": "the noun that it is",
    "guest": "helper",
    "guests": "helpers",
    "holding": "block until",
    "issuing": "issue",
    "joins": "joining, can_join",
    "learn": "what is learnt, and how",
    "moving": "copies",
    "picture": "snapshot",
    "pointers": "raw",
    "queries": "device info, report",
    "scheduling": "ready queue",
    "settle": "what becomes settled, and how",
    "sites": "call sites",
    "splits": "sample sort",
    "spread": "variance",
    "stock": "slow path, arena",
    "straight": "loop-free",
    "supply": "segments",
    "warming": "warm-up",
    "watching": "poller",
}
#: These may be words of a name, as in ``take_elements``, and are no module's.
MODULE_NAMES = {
    "attending": "event waiters",
    "bounded": "integers",
    "calling": "foreign calls",
    "categories": "categorical",
    "cores": "affinity",
    "elements": "accumulators",
    "entries": "memory operations",
    "entry": "backend handle, code handle",
    "full": "errors",
    "guard": "device context",
    "loaded": "compile service",
    "loading": "pending kernel",
    "moves": "gather",
    "named": "the public name, by the decorator",
    "operands": "arguments",
    "order": "vector clock",
    "piece": "chunk",
    "place": "launch configuration",
    "places": "arg extremes",
    "pools": "allocator registry",
    "private": "pool",
    "product": "matmul",
    "ranges": "parallel for",
    "reading": "readback, read-only arguments",
    "rejection": "gamma and Poisson",
    "running": "worker",
    "share": "partition",
    "short": "network",
    "teams": "thread block",
    "variants": "specializations",
    "vectors": "gemv",
    "words": "uniform",
}
#: What Python, or a counter that tells of what it counts, calls so.
EXCEPTIONS = {"LaunchError.found", "InvalidDeviceError.found"}


def words_of(name: str) -> list[str]:
    """The words of an identifier, in lower case."""
    return [word.lower() for word in WORD.findall(name)]


def source_files() -> Iterator[Path]:
    """Every file of the package and of its kernels."""
    for folder in ("aiodev", "kernels"):
        for path in (ROOT / folder).rglob("*.py"):
            if not path.is_relative_to(ROOT / "aiodev" / "kernels"):  # the symlink
                yield path


def module_words() -> set[str]:
    """Words of the names of files and folders."""
    return {word for path in source_files() for part in path.relative_to(ROOT).with_suffix("").parts for word in words_of(part)}


def public_words(module: str) -> set[str]:
    """Words of a module's public names, and of public attributes of its classes."""
    loaded = importlib.import_module(module)
    names = list(loaded.__all__)
    for name in loaded.__all__:
        if inspect.isclass(thing := getattr(loaded, name)):
            names += [member for member in vars(thing) if not member.startswith("_")]
    return {word for name in names for word in words_of(name)}


def glossary() -> set[str]:
    """Words of the terms that docs/glossary.rst defines."""
    text = (ROOT / "docs" / "glossary.rst").read_text().split(".. glossary::", 1)[1]
    terms = re.findall(r"^   (\S.*)$", text, re.MULTILINE)
    return {word.lower() for term in terms for word in re.findall(r"[A-Za-z]+", term)}


def plain_words() -> set[str]:
    """English, and words of Python and NumPy that name what they name there: tests/words.txt."""
    lines = (ROOT / "tests" / "words.txt").read_text().splitlines()
    return {word for line in lines if not line.startswith("#") for word in line.split()}


def identifiers(path: Path) -> Iterator[tuple[int, str, str]]:
    """(line, name with its class, name) of the functions, classes and attributes that a file defines."""

    def walk(node: ast.AST, owner: str) -> Iterator[tuple[int, str, str]]:
        for child in ast.iter_child_nodes(node):
            inner = owner
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield child.lineno, owner + child.name, child.name
                inner = f"{child.name}." if isinstance(child, ast.ClassDef) else owner
            elif isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
                yield child.lineno, owner + child.attr, child.attr
            yield from walk(child, inner)

    return walk(ast.parse(path.read_text()), "")


@pytest.mark.parametrize("module", MODULES)
def test_words_of_public_names(module: str) -> None:
    """Each is a term of docs/glossary.rst, or a plain word of tests/words.txt."""
    known = glossary() | plain_words()
    unknown = {word for word in public_words(module) if word not in known and word.removesuffix("s") not in known}
    assert not unknown, f"neither in docs/glossary.rst nor in tests/words.txt: {', '.join(sorted(unknown))}"


def test_words_of_modules() -> None:
    """Each is a term of docs/glossary.rst, or a plain word of tests/words.txt."""
    known = glossary() | plain_words()
    unknown = {word for word in module_words() if word not in known and word.removesuffix("s") not in known}
    assert not unknown, f"neither in docs/glossary.rst nor in tests/words.txt: {', '.join(sorted(unknown))}"


def test_no_module_is_called_by_a_word_that_the_field_has_another_for() -> None:
    """Files and folders have the field's word, whole."""
    others = FIELD | MODULE_NAMES
    wrong = [f"{path.relative_to(ROOT)}: {others[path.stem]}" for path in source_files() if path.stem in others]
    assert not wrong, "\n".join(wrong)


def test_no_file_of_tests_is_called_by_such_a_word() -> None:
    """Whoever looks for the tests of a module finds them by its name."""
    others = FIELD | MODULE_NAMES
    tests = {path: path.stem.removeprefix("test_") for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)}
    wrong = [f"{path.relative_to(ROOT)}: {others[word]}" for path, word in tests.items() if word in others]
    assert not wrong, "\n".join(wrong)


def test_no_name_is_a_word_that_the_field_has_another_for() -> None:
    """Functions, classes and attributes have the field's word."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}, say {FIELD[words[0]]}"
        for path in source_files()
        for line, full, name in identifiers(path)
        if len(words := words_of(name)) == 1 and words[0] in FIELD and full not in EXCEPTIONS
    ]
    assert not wrong, "\n".join(wrong)


def test_the_list_of_plain_words_has_only_what_is_used() -> None:
    """A word that no name has any more goes, and what the glossary has is not in the list."""
    missing = [module for module in EXTRAS if module not in MODULES]
    if missing:
        pytest.skip(f"the names of {', '.join(missing)} are not known: their extras are not installed")
    used = module_words().union(*map(public_words, MODULES))
    plain = plain_words()
    unused = {word for word in plain if word not in used and f"{word}s" not in used}
    assert not unused, f"in tests/words.txt, and in no name: {', '.join(sorted(unused))}"
    assert not plain & glossary(), f"in both: {', '.join(sorted(plain & glossary()))}"

"""The shape of the project: the ladder of layers, the packages that are installed, what importing loads."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RUNG = re.compile(r"^   (\d+)\s+((?:\w+)(?: · \w+)*)", re.MULTILINE)


def read_ladder() -> dict[str, int]:
    """Unit of the package → rung, from docs/layers.rst."""
    block = (ROOT / "docs" / "layers.rst").read_text().split(":name: ladder", 1)[1]
    return {name: int(rung) for rung, names in RUNG.findall(block) for name in names.split(" · ")}


LADDER = read_ladder()


def module_names() -> dict[str, Path]:
    """Every module of the package, kernels/ included, and its file."""
    found = {}
    for folder, package in ((ROOT / "aiodev", "aiodev"), (ROOT / "kernels", "aiodev.kernels")):
        for path in folder.rglob("*.py"):
            if package == "aiodev" and path.is_relative_to(ROOT / "aiodev" / "kernels"):
                continue  # the symlink
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = module_names()


def unit(module: str) -> str:
    """What a module is called on the ladder."""
    _, _, rest = module.partition("aiodev.")
    return rest.split(".")[0] if rest else "aiodev"


@functools.cache
def imports(module: str) -> list[tuple[int, str]]:
    """(line, imported module of aiodev), for type checkers and in functions, too."""
    return list(_find_imports(module))


def _find_imports(module: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "aiodev")
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}:{node.lineno}: a relative import; write the full name"
            if node.module and node.module.split(".")[0] == "aiodev":
                for alias in node.names:
                    submodule = f"{node.module}.{alias.name}"
                    yield node.lineno, submodule if submodule in MODULES else node.module


def run_python(code: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that sees the working directory first, as ``python -m`` does."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, '')\n{code}"]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def test_every_module_stands_on_the_ladder() -> None:
    """A new folder or file names its rung in docs/layers.rst."""
    assert {unit(module) for module in MODULES} - LADDER.keys() == set()


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_down(module: str) -> None:
    """No import, of any kind, points up the ladder; backends are imported by nobody but the simulated one."""
    own = unit(module)
    for line, target in imports(module):
        other = unit(target)
        assert other == own or LADDER[other] <= LADDER[own], f"{module}:{line} imports {target}, which stands above"
        reaches_in = other == "_backends" and own not in ("_backends", "testing")
        assert not reaches_in, f"{module}:{line} imports a backend past its entry point"


@pytest.mark.parametrize("module", sorted(m for m in MODULES if unit(m) in ("kernels", "_demo")))
def test_kernels_and_demo_see_only_public_names(module: str) -> None:
    """The standard kernels and the demo import what any user may import."""
    for line, target in imports(module):
        private = [part for part in target.split(".") if part.startswith("_")]
        assert unit(target) == unit(module) or not private, f"{module}:{line} imports {target}, which is private"


#: Who may compare names of devices: the registry says what is built in, and programs and tests say where they run.
NAMED = {"aiodev._core.backend.registry", "aiodev._core.backend.device"}


@pytest.mark.parametrize("module", sorted(m for m in MODULES if m not in NAMED and LADDER[unit(m)] < 8 or unit(m) == "kernels"))
def test_capabilities_are_asked_for_and_not_names(module: str) -> None:
    """Outside the backends nothing is chosen by the name of a device: one that nobody knows yet says what it can do."""
    if unit(module) == "_backends":
        return
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        tables = [*node.keys, *node.values] if isinstance(node, ast.Dict) else []
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else tables
        names = [side.value for side in sides if isinstance(side, ast.Constant) and side.value in ("cpu", "cuda")]
        assert not names, f"{module}:{node.lineno} looks at the name {names[0]!r}; ask aiodev.capabilities"


def kernels_of(module: str) -> set[str]:
    """Names of the kernels that a module defines."""
    tree = ast.parse(MODULES[module].read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {node.name for node in functions if any(re.match(r"aiodev\.kernel\b", ast.unparse(d)) for d in node.decorator_list)}


LIBRARY = sorted(module for module in MODULES if unit(module) == "kernels")
KERNELS = {name for module in LIBRARY for name in kernels_of(module)}


@pytest.mark.parametrize("module", LIBRARY)
def test_the_library_launches_by_operations(module: str) -> None:
    """By their calls, and nothing by itself: what is done for every operation would not be done for it."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            on_a_stream = isinstance(node.func.slice, ast.Tuple)
            alone = on_a_stream or isinstance(node.func.value, ast.Name) and node.func.value.id in KERNELS
            assert not alone, f"{module}:{node.lineno} launches {ast.unparse(node.func)} by itself; call.launch does"
    assert not calls_of(module, "bind"), f"{module} binds a launch: the call of an operation remembers it"


def circles() -> set[tuple[str, ...]]:
    """Modules that lead to each other by imports of any kind, those for type checkers and those in functions included."""
    ahead = {module: {target for _, target in imports(module) if target in MODULES} - {"aiodev"} for module in MODULES}
    reached: dict[str, set[str]] = {}
    for module in ahead:
        seen, left = set(), [module]
        while left:
            new = ahead[left.pop()] - seen
            seen |= new
            left += new
        reached[module] = seen
    return {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in reached
        if reached[module] - {module} and module in reached[module] and module != "aiodev"
    }


def test_modules_form_no_circle() -> None:
    """Modules can be read one after the other. A circle says that a class does too much, or that a protocol is missing."""
    assert not circles()


def calls_of(module: str, name: str) -> list[int]:
    """Lines on which a module calls a function or a method of that name."""
    calls = (node for node in ast.walk(ast.parse(MODULES[module].read_text())) if isinstance(node, ast.Call))
    return [node.lineno for node in calls if getattr(node.func, "attr", getattr(node.func, "id", None)) == name]


@pytest.mark.parametrize("module", sorted(module for module in MODULES if module.endswith(".tuning")))
def test_a_constant_that_trades_costs_says_which(module: str) -> None:
    """Whoever turns it reads, above it, what a larger and what a smaller value costs."""
    source = MODULES[module].read_text()
    lines = source.splitlines()
    places = [node.lineno for node in ast.parse(source).body if isinstance(node, ast.Assign | ast.AnnAssign)]
    assert places
    for place in places:
        said = " ".join(line.removeprefix("#: ") for line in takewhile(_is_remark, reversed(lines[: place - 1])))
        assert re.search(r"\b[Ll]arger\b", said) and re.search(r"\b[Ss]maller\b", said), f"{module}:{place}: {lines[place - 1]}"


def _is_remark(line: str) -> bool:
    return line.startswith("#: ")


def test_backends_import_nothing_of_each_other() -> None:
    """What they share is in ``executor`` and ``compile``, which know neither; their constants weigh other things."""
    kinds = {path.name for path in (ROOT / "aiodev" / "_backends").iterdir() if (path / "backend.py").exists()}
    assert kinds >= {"cpu", "cuda"}
    for module in MODULES:
        own = module.split(".")[2] if module.startswith("aiodev._backends.") else ""
        for line, target in imports(module) if own else ():
            others = [kind for kind in kinds - {own} if target.startswith(f"aiodev._backends.{kind}")]
            assert not others, f"{module}:{line} imports {target}, which is of another device"


def test_one_module_speaks_to_the_system_of_forks() -> None:
    """All that a forked child does has one order; the standard kernels have theirs done by a public name."""
    found = {module for module in MODULES if calls_of(module, "register_at_fork")}
    assert found == {"aiodev._core.at_fork"}


def test_every_package_is_installed() -> None:
    """pyproject.toml names exactly the packages that there are."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {module for module, path in MODULES.items() if path.name == "__init__.py"}
    assert packages == set(project["tool"]["setuptools"]["packages"])
    folders = {
        module if path.name == "__init__.py" else module.rpartition(".")[0] for module, path in MODULES.items()
    }
    assert folders <= packages, "a folder with modules lacks its __init__.py"


def test_importing_loads_neither_numba_nor_a_driver() -> None:
    """``import aiodev`` starts nothing, compiles nothing and opens no driver."""
    done = run_python(
        "before = set(sys.modules)  # other packages may import theirs when Python starts\n"
        "import aiodev, threading\n"
        "heavy = {'numba', 'llvmlite', 'cuda', 'trio', 'uvloop', 'matplotlib'} & (sys.modules.keys() - before)\n"
        "assert not heavy, heavy\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
    )
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there() -> None:
    """What ``aiodev.__all__`` promises exists, and says that it lives in ``aiodev``."""
    done = run_python(
        "import aiodev\n"
        "for name in aiodev.__all__:\n"
        "    value = getattr(aiodev, name)\n"
        "    assert not getattr(value, '__module__', 'aiodev').startswith('aiodev._'), name\n"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["array_api", "autograd", "kernels", "lang", "optim", "profiler", "testing"])
def test_public_modules_are_imported_when_they_are_asked_for(name: str) -> None:
    """``import aiodev`` is enough, and names them; it loads none that it has no need of itself."""
    done = run_python(
        "import aiodev\n"
        f"is_late = {name!r} != 'lang'\n"
        f"assert {name!r} in dir(aiodev) and ({name!r} in vars(aiodev)) != is_late\n"
        f"module = aiodev.{name}\n"
        f"assert module is sys.modules['aiodev.{name}'] is vars(aiodev)[{name!r}]\n"
        "assert not hasattr(aiodev, 'nonsense') and not hasattr(aiodev, 'dasks')\n"
    )
    assert done.returncode == 0, done.stderr


def test_kernels_from_the_root_are_refused() -> None:
    """``import kernels`` would make a second copy of every kernel; the error says what to import instead."""
    done = run_python("import kernels")
    assert done.returncode == 1
    assert "ImportError" in done.stderr
    assert "aiodev.kernels" in done.stderr

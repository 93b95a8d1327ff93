"""Every async test that is marked ``anyio`` runs on every loop that aiodev supports.

``pytestmark = pytest.mark.anyio`` at the top of a module marks all of its async tests; they then speak anyio, not asyncio.
An async test without the mark runs on asyncio alone, by pytest-asyncio. That plugin, in its auto mode, would also take
the marked ones, so they are handed to pytest as plain functions.

Not everything runs by default: ``tests/support/selection.py`` says what does, and ``--exhaustive`` runs the rest, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import inspect
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import selection

from aiodev._core.backend.registry import registry
from aiodev._native import code_cache

with contextlib.suppress(ImportError):  # which machines with a GPU may lack, and most tests do not need
    import hypothesis

    #: ``--hypothesis-profile=thorough``: for minutes, where a test does not say how long by itself.
    hypothesis.settings.register_profile("thorough", max_examples=3000, stateful_step_count=60, deadline=None)
    #: Without ``--exhaustive``: kernels that are compiled do not depend on chance.
    hypothesis.settings.register_profile("few", max_examples=selection.FEWEST, derandomize=True)

#: Seconds after which an async test on every loop fails instead of hanging.
DEADLINE = 60

Loop = tuple[str, dict[str, Any]]

LOOPS: dict[str, Loop] = {
    "asyncio": ("asyncio", {}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Loop:
    """The loop that the test runs on, as anyio names it."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return LOOPS[request.param]


_numbers = itertools.count()


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Any]], str]:
    """Registers a kind of backend for as long as the test lasts; gives its name.

    Which no other has: what the process keeps for a device, such as cached memory and idle streams, is no use to another.
    """
    for name in ("_handles", "_resolved"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    monkeypatch.setattr(registry, "_default", registry._default)

    def add(kind: type[Any]) -> str:
        name = f"{kind.__name__.lower()}_{next(_numbers)}"
        registry.register(name, type(kind.__name__, (kind,), {"name": name}))
        return name

    return add


@pytest.fixture
def cache_without_kernels(tmp_path: Path) -> Path:
    """A disk cache that has no kernels, for processes that are to compile theirs.

    It has the native executors' code, as this process has.
    """
    cache, native = tmp_path / "cache", Path(code_cache.native_directory())
    cache.mkdir()
    if native.exists():
        shutil.copytree(native, cache / native.name)
    return cache


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: Any
) -> list[pytest.Function] | None:
    """Make plain tests, one a loop, of a coroutine function that is marked ``anyio``."""
    if not inspect.iscoroutinefunction(obj) or not collector.istestfunction(obj, name):
        return None
    own = (mark.name for mark in getattr(obj, "pytestmark", ()))
    if collector.get_closest_marker("anyio") is None and "anyio" not in own:
        return None
    plain = on_every_loop(obj)
    setattr(collector.obj, name, plain)  # which is where the items look for their function
    return list(collector._genfunctions(name, plain))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run async tests where pytest-asyncio is not installed, as on machines with a GPU that nothing can be installed on."""
    plugins = pyfuncitem.config.pluginmanager
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or plugins.hasplugin("asyncio"):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


def on_every_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A plain test that runs ``test`` on the loop of the fixture ``anyio_backend``."""
    signature = inspect.signature(test)

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        backend, options = arguments["anyio_backend"]
        wanted = {name: arguments[name] for name in signature.parameters}

        async def bounded() -> None:
            with anyio.fail_after(DEADLINE):
                await test(**wanted)

        anyio.run(bounded, backend=backend, backend_options=options)

    fixture = inspect.Parameter("anyio_backend", inspect.Parameter.KEYWORD_ONLY)
    parameters = {**signature.parameters, "anyio_backend": fixture}
    run.__signature__ = signature.replace(parameters=list(parameters.values()))
    return run


#: Set in the process that goes ahead: whom for, and where it writes what has passed.
AHEAD, PASSED = "AIODEV_TESTS_AHEAD", "AIODEV_TESTS_PASSED"
#: Where what tests take is compiling, nearly all of it.
COMPILING = [Path(__file__).parent / folder for folder in ("array", "autograd", "graph", "kernels", "lang")]


#: How many of the tests were left out.
LEFT_OUT = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one way to run everything."""
    help = "run every combination of parameters, all of hypothesis' examples, and what is marked exhaustive"
    parser.addoption("--exhaustive", action="store_true", help=help)
    share = "with --exhaustive: of the tests that do not run by default, the K-th of N parts"
    parser.addoption("--share", default=(1, 1), metavar="K/N", type=selection.share_of, help=share)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Say what is to run, before tests are imported; choose hypothesis' seed, which the other process has, too."""
    selection.exhaustive, selection.share = config.getoption("exhaustive"), config.getoption("share")
    if getattr(config.option, "hypothesis_seed", "") is None:
        config.option.hypothesis_seed = str(random.randrange(1 << 32))
    if config.getoption("--hypothesis-profile", "") is None:
        if not selection.exhaustive:
            hypothesis.settings.load_profile("few")
        elif selection.share != (1, 1):
            hypothesis.settings.register_profile("share", max_examples=selection.examples(100))
            hypothesis.settings.load_profile("share")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Of what is asked for, leave out what is for ``--exhaustive``, but where a test is named by its id.

    The process that goes ahead begins at the end, so that both never compile the same, but where they meet.
    """
    config.stash[selection.COLLECTED] = list(items)
    yield
    is_all = selection.exhaustive and selection.share == (1, 1)
    if not is_all and not any("::" in argument for argument in config.args):
        chosen = selection.covering(items)
        if selection.exhaustive:
            chosen.update(item for item in items if selection.in_share(item.nodeid, selection.share))
        left_out = [item for item in items if item not in chosen]
        items[:] = [item for item in items if item in chosen]
        config.hook.pytest_deselected(items=left_out)
        config.stash[LEFT_OUT] = len(left_out)
    if AHEAD in os.environ:
        items.reverse()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what did not run."""
    left_out = config.stash.get(LEFT_OUT, 0)
    if left_out:
        line = f"{left_out:,} tests were left out: pytest --exhaustive runs them, and more examples"
        terminalreporter.write_line(line)


def compiles(item: pytest.Item) -> bool:
    """Whether a test is one of those."""
    return _is_compiling(item.path)


@functools.cache
def _is_compiling(path: Path) -> bool:
    return any(folder in path.parents for folder in COMPILING)


class Ahead:
    """Runs the tests that compile in a process of its own, from the last one on, until both meet.

    One kernel after the other keeps one core busy. What has passed there is taken for passed; what has not, runs again.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._passed: dict[str, list[dict[str, Any]]] = {}
        self._file, self._path = tempfile.mkstemp()
        self._rest = b""
        seed = f"--hypothesis-seed={config.option.hypothesis_seed}"
        # The same path as here, on which ``-m`` alone would put the tree first: kernels of other files are others to the cache.
        command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", seed, *map(str, COMPILING)]
        if selection.exhaustive:
            command += ["--exhaustive", "--share={}/{}".format(*selection.share)]
        quality = Path(__file__).parent / "kernels" / "test_random_quality.py"  # computes for long, with kernels of other tests
        command.append(f"--ignore={quality}")
        own = {AHEAD: str(os.getpid()), PASSED: self._path, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(
            command, env=os.environ | own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=config.rootpath
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Take over what has passed there, but for a test behind which fixtures of this process end."""
        self._read()
        reports = self._passed.get(item.nodeid, [])
        if not reports or nextitem is None or not set(item.session._setupstate.stack) <= set(nextitem.listchain()):
            return None
        self.end()  # from here on all was run there
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for data in reports:
            report = self._config.hook.pytest_report_from_serializable(config=self._config, data=data)
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _read(self) -> None:
        """Take in what was written since."""
        *lines, self._rest = (self._rest + b"".join(iter(lambda: os.read(self._file, 1 << 16), b""))).split(b"\n")
        for line in lines:
            name, *reports = json.loads(line)
            self._passed[name] = reports

    def pytest_sessionfinish(self) -> None:
        """End it, should it not have ended."""
        self.end()
        os.close(self._file)
        os.unlink(self._path)

    def end(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait()


class Reports:
    """In the process that goes ahead: writes what has passed, a line for each test, of its name and its reports."""

    def __init__(self, config: pytest.Config, path: str) -> None:
        self._config, self._path = config, path
        self._reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call and teardown, one after the other."""
        if report.when == "setup":
            self._reports = []
        self._reports.append(report)
        if report.when == "teardown" and all(own.passed for own in self._reports):
            write = self._config.hook.pytest_report_to_serializable
            line = [report.nodeid, *[write(config=self._config, report=own) for own in self._reports]]
            with open(self._path, "a") as file:
                file.write(json.dumps(line) + "\n")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Where everything is tested, run the tests that compile last, and another process from their end on, meanwhile."""
    if AHEAD in os.environ:
        session.config.pluginmanager.register(Reports(session.config, os.environ[PASSED]))
        return
    compiling = sum(map(compiles, session.items))
    if compiling >= 300 and len(session.items) - compiling >= 1000 and (os.cpu_count() or 1) > 1:
        session.items.sort(key=compiles)
        session.config.pluginmanager.register(Ahead(session.config))


def pytest_runtest_setup() -> None:
    """Do not outlive whom it is for, should that have been killed."""
    if AHEAD in os.environ and os.getppid() != int(os.environ[AHEAD]):
        pytest.exit("nobody waits for what passes here")

"""Which compiler and which driver go together: what is installed, what is too old, and what each message says to do."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import standin

import aiodev
from aiodev._backends.cuda import CUDABackend, backend as cuda_backend
from aiodev._backends.cuda.compile import image
from aiodev._core.backend.interface import KernelSpec

ROOT = Path(__file__).parents[2]


def test_extras() -> None:
    """One for each toolkit, with the oldest compiler that is accepted; the plain name is the one that every driver accepts."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    oldest = ".".join(map(str, cuda_backend.MINIMUM_COMPILER))
    for name, toolkit in {"cuda12": "cu12", "cuda13": "cu13"}.items():
        assert f"numba-cuda[{toolkit}]>={oldest}" in extras[name]
        assert f"cuda-toolkit[cublas,cufft,cusolver]=={toolkit[2:]}.*" in extras[name]
    assert extras["cuda"] == ["aiodev[cuda12]"]


@pytest.mark.parametrize(("version", "accepted"), [("0.28.2", False), ("0.30.0", True), ("1.0", True)])
def test_a_compiler_that_is_too_old(
    version: str, accepted: bool, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason has what is installed, what is needed, and how to get it, before anything fails to be imported."""
    (tmp_path / "numba_cuda").mkdir()
    (tmp_path / "numba_cuda" / "__init__.py").touch()
    installed = tmp_path / f"numba_cuda-{version}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: numba-cuda\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    reason = CUDABackend(library=library).unavailable_reason()
    if accepted:
        assert reason is None
    else:
        assert reason is not None and version in reason and "numba-cuda>=0.30" in reason


def _nothing(i: int, x: Any) -> None:
    x[i] = 0


class _Toolkit(standin.StandInCompiler):
    """Makes cubins of some ELF ABI, which the stand-in refuses, as it does whatever is not its own."""

    abi = 8

    def load_image(self, spec: KernelSpec, directory: str, architecture: tuple[int, int]) -> Any:
        cubin = b"\x7fELF\x02\x01\x01\x41" + bytes([self.abi]) + bytes(64)
        return dataclasses.replace(super().load_image(spec, directory, architecture), cubin=cubin)


@pytest.mark.parametrize(
    ("abi", "error", "message"),
    [
        (8, aiodev.CompileError, "the toolkit of CUDA 13 compiled it.*driver is for CUDA 12.*aiodev.cuda12"),
        (7, aiodev.DeviceError, "loading nothing on cuda:0"),
    ],
)
def test_what_a_driver_is_too_old_for(
    abi: int, error: type[Exception], message: str, backend: CUDABackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cubin of a later toolkit than the driver's is refused with both versions, and with what to install."""
    compiler = _Toolkit()
    compiler.abi = abi
    monkeypatch.setattr(backend, "_compiler", compiler)
    with pytest.raises(error, match=message):
        backend.load(KernelSpec("nothing", _nothing, 1, ("A1i8C",)), "")


@pytest.mark.parametrize(
    ("variable", "place"),
    [
        ("CUDA_HOME", "nvvm/lib64/libnvvm.so"), ("CUDA_HOME", "lib64/libnvJitLink.so"),
        ("CONDA_PREFIX", "lib/libnvJitLink.so"), ("CONDA_PREFIX", "lib/libnvJitLink.so.12"),
    ],
)  # fmt: skip
def test_a_kernel_is_cached_for_its_toolkit_and_driver(
    variable: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver, or another compiler or linker in a toolkit's folder, wherever that has them, is another file."""
    spec = KernelSpec("nothing", _nothing, 1, ("A1i8C",), (), "0" * 64)
    library = tmp_path / place
    library.parent.mkdir(parents=True)
    library.touch()

    def names() -> set[Path | None]:
        image.made_by.cache_clear()
        return {image._path(spec, "cache", (9, 0), driver) for driver in (12, 13)}

    before = names()
    monkeypatch.setenv(variable, str(tmp_path))
    there = names()
    library.with_name("later.so").write_bytes(b"later")
    library.unlink()
    library.symlink_to("later.so")
    after = names()
    monkeypatch.undo()
    image.made_by.cache_clear()
    assert len(before) == 2 and not before & there and not there & after


def test_what_is_missing_says_which_extra(library: str, run: Callable[..., str]) -> None:
    """Without numba-cuda the reason names both extras."""
    said = run(
        """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numba_cuda" else found(name, *rest)
print(CUDABackend(library=library).unavailable_reason())
"""
    )
    assert "aiodev[cuda12]" in said and "aiodev[cuda13]" in said

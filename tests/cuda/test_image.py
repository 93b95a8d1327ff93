"""What the disk cache keeps of a kernel for CUDA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiodev._backends.compile import disk_cache
from aiodev._backends.compile.raised import ByName
from aiodev._backends.cuda.compile import image
from aiodev._backends.cuda.compile.image import Image
from aiodev._core.backend.interface import KernelSpec

#: As the compiler gives them: by status, a class, arguments, and where.
EXCEPTIONS: dict[int, Any] = {
    1: (ValueError, ("too large", 2.5, None), ("body", "file.py", 3)),
    2: (IndexError, None, (None, "file.py", 4)),
    3: (ByName, (("json", "JSONDecodeError"), "text"), None),
    4: (None, None, None),
}


def kept(where: Path) -> tuple[KernelSpec, Path]:
    """A kernel, and its file."""
    spec = KernelSpec("body", lambda i: None, 1, (), (), "0" * 64)
    path = image._path(spec, str(where), (9, 0), 12)
    assert path is not None
    return spec, path


def test_an_image_is_kept_without_a_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the exceptions that it raises, whose classes are named."""

    def refuse(*data: Any) -> Any:
        raise AssertionError("a pickle was loaded")

    monkeypatch.setattr(disk_cache.pickle, "loads", refuse)
    spec, path = kept(tmp_path)
    made = Image(b"\x7fELF cubin", "aiodev_body", EXCEPTIONS)
    disk_cache.write(path, made.to_parts())
    assert image.cached_image(spec, str(tmp_path), (9, 0), 12) == made


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b"cubin", b"symbol"],
        [b"cubin", b"symbol", b"!no pickle"],
        [b"cubin", b"symbol", b"={1: (('json', 'NoSuchError'), None, None)}"],
        [b"cubin", b"symbol", b"={1: (('no_such_module', 'NoSuchError'), None, None)}"],
    ],
)
def test_what_cannot_be_understood_counts_as_absent(tmp_path: Path, parts: list[bytes]) -> None:
    """Another version has written it; the kernel is compiled again."""
    spec, path = kept(tmp_path)
    disk_cache.write(path, parts)
    assert image.cached_image(spec, str(tmp_path), (9, 0), 12) is None

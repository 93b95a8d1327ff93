"""The text that the model learns, which ships with Python, and the codes of its characters.

Docstrings, comments and help topics of the standard library (licence: PSF). Only prose is kept, a paragraph a line.
"""

from __future__ import annotations

import ast
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from string import ascii_letters

import numpy as np

__all__ = ["SYMBOLS", "decode", "encode", "read_paragraphs"]

#: Characters by their codes. The first ends a paragraph.
SYMBOLS = "\n" + "".join(map(chr, range(32, 127)))
_CODES = {symbol: code for code, symbol in enumerate(SYMBOLS)}

#: Characters of a paragraph, at least.
_SHORTEST = 50
#: Translates prose to nothing; so large a part of a text may be left. And what only code has: one in so many words.
_WITHOUT_PROSE = dict.fromkeys(map(ord, ascii_letters + " ,.'\"();:-"))
_CODE = re.compile(r"\w[_.(]\w|__")
_OTHERS, _WORDS_PER_CODE = 0.03, 12


def encode(text: str) -> np.ndarray:
    """The codes of characters; those that the model does not know are left out."""
    return np.array([_CODES[symbol] for symbol in text if symbol in _CODES], np.int32)


def decode(codes: np.ndarray) -> str:
    """The characters of codes."""
    return "".join(SYMBOLS[code] for code in codes)


def read_paragraphs() -> list[str]:
    """Each paragraph of prose in the standard library, once, in the order of its files."""
    return list(dict.fromkeys(line for text in _texts() for line in map(_joined, text.split("\n\n")) if _is_prose(line)))


def _texts() -> Iterator[str]:
    yield from topics.values()
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        try:
            source = path.read_text()
            tree = ast.parse(source)
        except (SyntaxError, UnicodeDecodeError):  # made so, for the tests of the parser
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield ast.get_docstring(node) or ""
        yield "\n".join(re.sub(r"^\s*#+", "", line) if line.lstrip().startswith("#") else "" for line in source.splitlines())


def _joined(paragraph: str) -> str:
    return " ".join(paragraph.split())


def _is_prose(line: str) -> bool:
    if len(line) < _SHORTEST or not line[0].isupper() or line[-1] not in ".:!?)" or not set(line) <= _CODES.keys():
        return False
    mostly_words = len(line.translate(_WITHOUT_PROSE)) <= _OTHERS * len(line)
    return mostly_words and _WORDS_PER_CODE * len(_CODE.findall(line)) <= len(line.split())

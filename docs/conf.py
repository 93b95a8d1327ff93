"""Sphinx configuration. Nothing here needs the network: no inventories, no remote images."""

from __future__ import annotations

import aiodev

project = "aiodev"
author = "The aiodev developers"
copyright = f"2026, {author}"
release = aiodev.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.doctest", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"aiodev {release}"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# Without inventories nothing outside aiodev can be linked to; everything inside must be.
nitpick_ignore_regex = [(r"py:.*", r"(?!aiodev\.)(?!aiodev$).*"), (r"py:.*", r"aiodev\.(_|testing\.\w+\.).*")]

doctest_global_setup = """
import asyncio
import numpy as np
import aiodev
from aiodev.lang import *
"""
doctest_test_doctest_blocks = "default"

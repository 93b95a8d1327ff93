"""How numba is driven: its own nopython pipeline, with lowering that knows its line and no wrappers for Python."""

from __future__ import annotations

from typing import Any

from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import register_pass
from numba.core.cpu import CPUTargetOptions
from numba.core.typed_passes import BaseNativeLowering, NativeLowering

from aiodev._backends.cpu.compiler_errors import ERROR_MODEL, LocatedLower, install_error_model

__all__ = ["EntryCompiler", "entry_flags"]


@register_pass(mutates_CFG=True, analysis_only=False)
class _LocatedLowering(BaseNativeLowering):  # type: ignore[misc]
    """Native lowering whose exceptions all say their line."""

    _name = "aiodev_native_lowering"

    @property
    def lowering_class(self) -> type[LocatedLower]:
        return LocatedLower


class EntryCompiler(CompilerBase):  # type: ignore[misc]
    """numba's nopython pipeline with :class:`_LocatedLowering` in place of its own lowering."""

    def define_pipelines(self) -> list[Any]:
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [
            (_LocatedLowering if found is NativeLowering else found, text) for found, text in pipeline.passes
        ]
        pipeline.finalize()
        return [pipeline]


def entry_flags(fastmath: bool | set[str]) -> Flags:
    """Compiler flags of an entry: native code only, called by its symbol."""
    install_error_model()
    flags = Flags()
    options: dict[str, Any] = {"nopython": True, "nogil": True, "error_model": ERROR_MODEL, "fastmath": fastmath}
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    CPUTargetOptions.parse_as_flags(flags, options)
    return flags

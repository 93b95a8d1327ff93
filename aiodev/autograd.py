"""Reverse-mode differentiation whose backward pass is asynchronous and follows the streams of the forward pass."""

from __future__ import annotations

from aiodev._autograd import recording as _recording  # noqa: F401  (tells operations how they are recorded)
from aiodev._autograd.backward import backward, grad, value_and_grad
from aiodev._autograd.checkpoint import checkpoint
from aiodev._autograd.function import Context, Function, once_differentiable
from aiodev._autograd.functional import hessian, jvp, vjp
from aiodev._autograd.gradcheck import gradcheck, gradgradcheck
from aiodev._autograd.modes import (
    detect_anomaly,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from aiodev._autograd.node import HookHandle, Node
from aiodev._autograd.variable import Variable
from aiodev._core.errors import GradientError

__all__ = [
    "Context",
    "Function",
    "GradientError",
    "HookHandle",
    "Node",
    "Variable",
    "backward",
    "checkpoint",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "hessian",
    "inference_mode",
    "is_grad_enabled",
    "jvp",
    "no_grad",
    "once_differentiable",
    "set_grad_enabled",
    "value_and_grad",
    "vjp",
]

for _name in __all__:
    _value = globals()[_name]
    if _value.__module__.startswith("aiodev._autograd"):
        _value.__module__ = __name__
del _name, _value


def __dir__() -> list[str]:
    return __all__

"""The array API's discrete Fourier transforms.

All submit to the current stream and wait for nothing. Single and double precision stay what they are; ``float16`` and
``bfloat16`` are transformed in single precision, integers in double.

``norm`` says where factors are: ``"backward"``, the default, divides inverse transforms by the number of elements,
``"forward"`` the others, and ``"ortho"`` both by its square root.
"""

from __future__ import annotations

from aiodev.kernels.fft.frequencies import fftfreq, fftshift, ifftshift, rfftfreq
from aiodev.kernels.fft.transforms import fft, fftn, hfft, ifft, ifftn, ihfft, irfft, irfftn, rfft, rfftn

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]


def __dir__() -> list[str]:
    return __all__

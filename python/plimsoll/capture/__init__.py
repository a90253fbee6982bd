"""Captures a training script without a GPU: `python -m plimsoll.capture -- train.py ARGS`, or

    with plimsoll.capture(steps=2, gpu='rtx-4090', sizes={'batch': 6}) as c:
        train()
    c.save('run.trace')
"""
from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from .errors import CaptureDone, CaptureError
from .session import Capture, Options

__all__ = ['Capture', 'CaptureDone', 'CaptureError', 'Options', 'capture']


def capture(**options: Any) -> Capture:
    return Capture(Options(**options))


class _Callable(ModuleType):
    """`plimsoll.capture` is the module and the function that one means by it."""
    def __call__(self, **options: Any) -> Capture:
        return capture(**options)


sys.modules[__name__].__class__ = _Callable

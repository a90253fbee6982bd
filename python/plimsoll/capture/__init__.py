"""Captures a training script without a GPU: `python -m plimsoll.capture -- train.py ARGS`, or

    with plimsoll.capture(steps=2, gpu='rtx-4090', sizes={'batch': 6}) as c:
        train()
    c.save('run.trace')
"""
from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .errors import CaptureDone, CaptureError

if TYPE_CHECKING:
    from .session import Capture, Options

__all__ = ['Capture', 'CaptureDone', 'CaptureError', 'Options', 'capture']


def capture(**options: Any) -> Capture:
    from .session import Capture, Options
    return Capture(Options(**options))


def __getattr__(name: str) -> Any:
    """PyTorch is imported with what needs it: formulas and cards do not."""
    if name in ('Capture', 'Options'):
        from . import session
        return getattr(session, name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


class _Callable(ModuleType):
    """`plimsoll.capture` is the module and the function that one means by it."""
    def __call__(self, **options: Any) -> Capture:
        return capture(**options)


sys.modules[__name__].__class__ = _Callable

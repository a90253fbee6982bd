"""Plimsoll's Python half: captures training scripts for `plimsoll`, which evaluates them."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import capture as capture

__all__ = ['capture']


def __getattr__(name: str) -> Any:
    """PyTorch is imported only when a capture is wanted."""
    if name == 'capture':
        import importlib
        return importlib.import_module('.capture', __name__)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')

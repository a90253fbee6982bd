"""What a script gets that reads a number from the device: the true one where it is known, else an assumption that is reported."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .errors import CaptureError
from .notes import Notes
from .places import Places
from .shadows import Shadows

MOST_READS = 10_000  # of one line, without a step in between


class Values:
    def __init__(self, shadows: Shadows, notes: Notes, places: Places, given: dict[str, float], hint: Callable[[Any], int]) -> None:
        self._shadows, self._notes, self._places, self._given, self._hint = shadows, notes, places, given, hint
        self._since_step: dict[str, int] = {}

    def step(self) -> None:
        self._since_step.clear()

    def _assumed(self, dtype: torch.dtype, where: str) -> Any:
        if where in self._given:
            value = self._given[where]
            return bool(value) if dtype is torch.bool else float(value) if dtype.is_floating_point else int(value)
        return False if dtype is torch.bool else 1.0 if dtype.is_floating_point else 1

    def _count(self, where: str, dtype: torch.dtype) -> None:
        n = self._since_step[where] = self._since_step.get(where, 0) + 1
        if n >= MOST_READS:
            name = str(dtype).removeprefix('torch.')
            raise CaptureError(f'{where} read a {name} from the device {n:,} times without a step: a loop that waits for a value never ends here. '
                               f'Give --value {where}=NUMBER')

    def scalar(self, t: torch.Tensor) -> Any:
        where, name = self._places.here(), str(t.dtype).removeprefix('torch.')
        self._count(where, t.dtype)
        shadow = self._shadows.of(t)
        if shadow is not None and where not in self._given:
            value = shadow.item()
            self._notes.read(where, name, value, True)
            return value
        value = self._assumed(t.dtype, where)
        self._notes.read(where, name, value, False)
        return value

    def to_host(self, t: torch.Tensor) -> torch.Tensor:
        """A real host tensor in the place of a device tensor."""
        where, name = self._places.here(), str(t.dtype).removeprefix('torch.')
        self._count(where, t.dtype)
        shadow = self._shadows.of(t)
        with _disable_current_modes():
            if shadow is not None and where not in self._given:
                self._notes.read(where, name, shadow.item() if shadow.numel() == 1 else None, True)
                return shadow.detach().clone()
            value = self._assumed(t.dtype, where)
            self._notes.read(where, name, value, False)
            return torch.full([self._hint(s) for s in t.shape], value, dtype=t.dtype, device='cpu')

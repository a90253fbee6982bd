"""True values of device tensors that a program may decide by: ids, masks, positions, counters.

A device tensor has no values, but whether a mask masks anything decides what is allocated. Integers and booleans come from
the host or from arange, and small constants from ones and zeros, through arithmetic: that is done here on the host, beside
the device's. Weights, activations and what optimizers compute stay unknown.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_unflatten

LARGEST = 1 << 22        # elements: 32 MiB of indices
LARGEST_FLOAT = 1 << 16  # a mask of ones, not a layer


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in _tensors(v)]
    return [value] if isinstance(value, torch.Tensor) else []


class Shadows:
    def __init__(self, hint: Callable[[Any], int]) -> None:
        self._hint = hint
        self._values: dict[int, tuple[Any, torch.Tensor]] = {}
        self._spoiled: set[int] = set()  # storages that were written with something unknown
        self._storages: set[int] = set()

    def of(self, t: torch.Tensor) -> torch.Tensor | None:
        entry = self._values.get(id(t))
        if entry is None or entry[0]() is not t or t.untyped_storage()._cdata in self._spoiled:
            return None
        return entry[1]

    def set(self, t: torch.Tensor, value: torch.Tensor) -> None:
        if value.numel() <= LARGEST:
            key = id(t)
            self._storages.add(t.untyped_storage()._cdata)
            self._values[key] = (weakref.ref(t, lambda _: self._values.pop(key, None)), value)

    def storage_died(self, key: int) -> None:
        self._spoiled.discard(key)
        self._storages.discard(key)

    def follow(self, func: Any, args: Any, kwargs: Any, out: Any, floats: bool) -> None:
        """Does on the host what `func` did on the device, if all that it read is known; else what it wrote is unknown."""
        outs = [t for t in _tensors(out) if isinstance(t, FakeTensor)]
        known = (outs and all(self._may_be_known(t, floats) for t in outs)
                 and torch.Tag.nondeterministic_seeded not in func.tags and 'empty' not in func.__name__)
        if not known or not self._repeat(func, args, kwargs, outs):
            self._spoil(func, args)

    def _may_be_known(self, t: Any, floats: bool) -> bool:
        if t.dtype.is_complex:
            return False
        return not t.dtype.is_floating_point or floats and self._hint(t.numel()) <= LARGEST_FLOAT

    def _repeat(self, func: Any, args: Any, kwargs: Any, outs: list[Any]) -> bool:
        flat, spec = tree_flatten((args, kwargs))
        real: list[Any] = []
        for a in flat:
            if isinstance(a, torch.Tensor):
                value = self.of(a) if isinstance(a, FakeTensor) else a
                if value is None or value is a and a.dtype.is_floating_point and a.dim():
                    return False  # what a host's floating-point tensor is for is not known: weights, images
                real.append(value)
            elif isinstance(a, torch.SymInt):
                real.append(self._hint(a))
            elif isinstance(a, torch.SymFloat | torch.SymBool):
                return False
            elif isinstance(a, torch.device):
                real.append(torch.device('cpu'))
            else:
                real.append(a)
        if sum(t.numel() if not isinstance(t, FakeTensor) else 0 for t in real if isinstance(t, torch.Tensor)) > LARGEST:
            return False
        host_args, host_kwargs = tree_unflatten(real, spec)
        try:
            with _disable_current_modes():
                result = func(*host_args, **host_kwargs)
                if any(result is a for a in host_args) and not func._schema.is_mutable:
                    result = result.clone()
        except Exception:  # no such kernel on the host: the value is not known then
            return False
        for t, value in zip(outs, _tensors(result)):
            self.set(t, value)
        return True

    def _spoil(self, func: Any, args: Any) -> None:
        if not func._schema.is_mutable:
            return
        for value, described in zip(args, func._schema.arguments):
            if described.alias_info is not None and described.alias_info.is_write:
                for t in _tensors(value):
                    if isinstance(t, FakeTensor) and t.untyped_storage()._cdata in self._storages:
                        self._spoiled.add(t.untyped_storage()._cdata)

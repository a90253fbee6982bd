"""The device storages that are alive and the stream of events: births, deaths, relabels, phases and steps, in program order.

Sizes are numbers or expressions; what an expression is worth at the captured sizes is asked of `hint`.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Amount = Any  # an int, or a sympy expression


@dataclass
class Birth:
    number: int
    bytes: Amount
    category: str   # at birth
    label: str      # now
    phase: str
    op: str
    scope: int
    copy_of: int    # storage whose values it began with, -1 for none


@dataclass
class Pending:
    """A sum that CUDA may make in place: an allocation only if its source does not die before the next one."""
    source: int
    storage: Any
    category: str
    key: int
    scope: int
    op: str


class Ledger:
    def __init__(self, size: Callable[[Any], Amount], hint: Callable[[Amount], int]) -> None:
        self._size, self._hint = size, hint
        self.events: list[tuple[Any, ...]] = []
        self.births: list[Birth] = []
        self.live: dict[int, Birth] = {}
        self._known: set[int] = set()
        self._pending: Pending | None = None
        self.current = self.peak = 0
        self.phase = 'setup'
        self.frozen = False
        self.on_death: list[Callable[[int], None]] = []

    def begin_phase(self, phase: str) -> None:
        if self.phase != phase:
            self.settle()
            self.phase = phase
            self.events.append(('phase', phase))

    def begin_step(self) -> None:
        self.settle()
        self.events.append(('step',))

    def born(self, storage: Any, category: str, op: str, scope: int, copy_of: int = -1) -> None:
        key = storage._cdata
        if self._pending is not None:
            if key == self._pending.key:
                return
            self.settle()
        if key in self.live or self.frozen:
            return
        self._watch(storage, key)
        amount = self._size(storage.nbytes())
        if type(amount) is int and amount == 0:
            return
        birth = Birth(len(self.births), amount, category, category, self.phase, op, scope, copy_of)
        self.births.append(birth)
        self.live[key] = birth
        self.events.append(('alloc', birth.number))
        self.current += self._hint(amount)
        self.peak = max(self.peak, self.current)

    def _watch(self, storage: Any, key: int) -> None:
        if key not in self._known:
            self._known.add(key)
            weakref.finalize(storage, self._died, key).atexit = False

    def _died(self, key: int) -> None:
        self._known.discard(key)
        for tell in self.on_death:
            tell(key)
        self.freed(key)

    def freed(self, key: int) -> None:
        birth = self.live.pop(key, None)
        if birth is None or self.frozen:
            return
        if self._pending is not None and self._pending.source == key:  # the source died first: the sum was made in place
            pending, self._pending = self._pending, None
            storage = pending.storage()
            if storage is not None:
                self.live[pending.key] = birth
                self._watch(storage, pending.key)
                return
        self.events.append(('free', birth.number))
        self.current -= self._hint(birth.bytes)

    def is_known(self, key: int) -> bool:
        return key in self._known

    def expect_in_place(self, source: int, storage: Any, category: str, op: str, scope: int) -> None:
        self._pending = Pending(source, weakref.ref(storage), category, storage._cdata, scope, op)

    def settle(self) -> None:
        """The source of a pending sum did not die in time: the sum was an allocation after all."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            storage = pending.storage()
            if storage is not None:
                self.born(storage, pending.category, pending.op, pending.scope)

    def relabel(self, key: int, category: str) -> None:
        self.settle()
        birth = self.live.get(key)
        if birth is not None and birth.label != category and not self.frozen:
            birth.label = category
            self.events.append(('relabel', birth.number, category))

    def freeze(self) -> None:
        """Nothing counts from here: tearing down is no part of training."""
        self.settle()
        self.frozen = True

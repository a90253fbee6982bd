"""A capture as a trace file, version 2: JSON lines; sizes that depend on symbols as formulas, each written once."""
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import formulas
from .ledger import Birth
from .notes import Notes
from .symbols import LARGEST, SMALLEST, Sizes

VERSION = 2


@dataclass
class Header:
    torch: str
    script: str
    device: str
    steps: int


@dataclass
class Writer:
    sizes: Sizes
    notes: Notes
    names: Mapping[str, str] = field(init=False)
    _numbers: dict[str, int] = field(default_factory=dict)
    _cannot: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = self.sizes.names()

    def lines(self, header: Header, scopes: list[tuple[int, int, str]], births: list[Birth], events: list[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
        body = list(self._events(births, events))
        yield {'plimsoll_trace': VERSION, 'torch': header.torch, 'script': header.script, 'device': header.device, 'steps': header.steps}
        used = set(self.names.values())
        for name, value in self.sizes.named.items():
            if name in used:
                yield {'symbol': name, 'at': value, 'min': SMALLEST, 'max': LARGEST}
        yield from self._conditions()
        for text, number in self._numbers.items():
            yield {'formula': number, 'bytes': text}
        for number, parent, name in scopes:
            yield {'scope': number, 'parent': parent, 'name': name}
        yield from body

    def _events(self, births: list[Birth], events: list[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
        for event in events:
            if event[0] == 'alloc':
                b = births[event[1]]
                line = {'alloc': b.number, 'bytes': self._bytes(b.bytes), 'category': b.category, 'phase': b.phase}
                if b.op:
                    line['op'] = b.op
                if b.scope:
                    line['scope'] = b.scope
                yield line
            elif event[0] == 'free':
                yield {'free': event[1]}
            elif event[0] == 'relabel':
                yield {'relabel': event[1], 'category': event[2]}
            elif event[0] == 'phase':
                yield {'phase': event[1]}
            else:
                yield {'step': True}

    def _bytes(self, amount: Any) -> Any:
        if type(amount) is int:
            return amount
        try:
            text = formulas.formula(amount, self.names)
        except formulas.Inexpressible:
            self._cannot.extend(sorted(str(s) for s in amount.free_symbols))
            return self.sizes.hint(amount)
        return {'formula': self._numbers.setdefault(text, len(self._numbers))}

    def _conditions(self) -> Iterator[dict[str, Any]]:
        guards, pins = self.sizes.conditions()
        for text, where in guards:
            yield {'guard': text, 'where': where}
        values = {str(s): v for s, v in self.sizes.values().items()} if self.sizes.env is not None else {}
        for symbol in dict.fromkeys(self._cannot):  # a size that the grammar cannot say holds at these sizes only
            if symbol in self.names:
                pins.append((f'{self.names[symbol]} = {values[symbol]}', ''))
        for text, where in pins:
            yield {'pin': text, 'where': where}
        for c in self.notes.counts:
            yield {'count': c.name, 'at': c.at, 'most': self._most(c.most), 'known': c.known, 'where': c.where}
        for r in self.notes.reads.values():
            yield {'read': r.where, 'dtype': r.dtype, 'value': r.value, 'known': r.known}
        for what, where in self.notes.skipped:
            yield {'skipped': what, 'where': where}
        for what, where in self.notes.notes:
            yield {'note': what, 'where': where}

    def _most(self, amount: Any) -> Any:
        if type(amount) is int:
            return str(amount)
        try:
            return formulas.formula(amount, self.names)
        except formulas.Inexpressible:
            return str(self.sizes.hint(amount))


def text(lines: Iterator[dict[str, Any]]) -> str:
    return ''.join(json.dumps(line, separators=(',', ':'), ensure_ascii=False) + '\n' for line in lines)

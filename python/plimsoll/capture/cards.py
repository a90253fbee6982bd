"""The cards that torch.cuda can look like, from the package's own table: names, memory, compute capability."""
from __future__ import annotations

import csv
import difflib
import os
from dataclasses import dataclass

from .errors import CaptureError

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'cards.csv')


@dataclass(frozen=True)
class Card:
    id: str
    name: str
    memory: int  # bytes
    capability: tuple[int, int]


def all_cards() -> dict[str, Card]:
    with open(TABLE, encoding='utf-8', newline='') as f:
        rows = list(csv.DictReader(f))
    cards = {}
    for r in rows:
        major, minor = r['compute_capability'].split('.')
        cards[r['id']] = Card(r['id'], r['name'], int(r['memory_mib']) << 20, (int(major), int(minor)))
    return cards


def card(name: str) -> Card:
    cards = all_cards()
    key = name.lower().replace(' ', '-')
    if key in cards:
        return cards[key]
    inside = [c for c in cards if key in c]
    if len(inside) == 1:
        return cards[inside[0]]
    near = inside[:4] or difflib.get_close_matches(key, cards, 4, 0.3)
    raise CaptureError(f'no card is called {name}' + (f'; near: {", ".join(near)}' if near else '') + '. `python -m plimsoll.capture --list-gpus` lists all')

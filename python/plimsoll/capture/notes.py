"""What a capture skipped, read and assumed: each said once for each place, with how often it happened."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Read:
    """A number that left the device. `known`: computed from the host's own values; else it is an assumption."""
    where: str
    dtype: str
    value: Any
    known: bool
    times: int = 1


@dataclass
class Count:
    """A size that depends on values, as one symbol."""
    name: str
    at: int
    most: Any
    known: bool
    where: str


@dataclass
class Notes:
    notes: dict[tuple[str, str], int] = field(default_factory=dict)
    skipped: dict[tuple[str, str], int] = field(default_factory=dict)
    reads: dict[tuple[str, str, bool], Read] = field(default_factory=dict)
    counts: list[Count] = field(default_factory=list)

    def note(self, text: str, where: str = '') -> None:
        self.notes[text, where] = self.notes.get((text, where), 0) + 1

    def skip(self, what: str, where: str) -> None:
        self.skipped[what, where] = self.skipped.get((what, where), 0) + 1

    def read(self, where: str, dtype: str, value: Any, known: bool) -> Read:
        key = (where, dtype, known)
        if key in self.reads:
            self.reads[key].times += 1
        else:
            self.reads[key] = Read(where, dtype, value, known)
        return self.reads[key]

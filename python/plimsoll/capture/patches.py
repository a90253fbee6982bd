"""Attributes that are replaced for the time of a capture, and put back afterwards in reverse order."""
from __future__ import annotations

from typing import Any

_ABSENT = object()


class Patches:
    def __init__(self) -> None:
        self._old: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Sets owner.name and returns what was there: a descriptor as it is in the class, None if there was nothing."""
        own = vars(owner).get(name, _ABSENT) if hasattr(owner, '__dict__') else getattr(owner, name, _ABSENT)
        self._old.append((owner, name, own))
        before = getattr(owner, name, None)
        setattr(owner, name, value)
        return before

    def set_if_there(self, owner: Any, name: str, value: Any) -> Any:
        return self.set(owner, name, value) if hasattr(owner, name) else None

    def call_on_restore(self, undo: Any) -> None:
        self._old.append((undo, '', _ABSENT))

    def restore(self) -> None:
        while self._old:
            owner, name, value = self._old.pop()
            if not name:
                owner()
            elif value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)

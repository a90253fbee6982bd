"""The tree of modules: in which module's forward something happens, and for a node of backward in which it was made."""
from __future__ import annotations

from typing import Any

import torch

_REMEMBERED = 1 << 20  # nodes: those of older steps are forgotten


class Scopes:
    def __init__(self) -> None:
        self.lines: list[tuple[int, int, str]] = []  # number, parent, name
        self._number: dict[str, int] = {'': 0}
        self._names: dict[int, str] = {}
        self._stack: list[int] = []
        self._nodes: dict[int, int] = {}

    @property
    def inside(self) -> bool:
        return bool(self._stack)

    def know(self, root: Any) -> None:
        for name, module in root.named_modules():
            self._names.setdefault(id(module), name)

    def enter(self, module: Any) -> None:
        self._stack.append(self._of(self._names.get(id(module), '')))

    def leave(self) -> None:
        if self._stack:
            self._stack.pop()

    def leave_all(self) -> list[int]:
        """For the engine, which runs outside of any module; `return_to` goes back."""
        saved, self._stack = self._stack, []
        return saved

    def return_to(self, saved: list[int]) -> None:
        self._stack = saved

    def _of(self, name: str) -> int:
        if name not in self._number:
            parent, _, last = name.rpartition('.')
            above = self._of(parent)
            self._number[name] = len(self.lines) + 1
            self.lines.append((self._number[name], above, last))
        return self._number[name]

    def forward_node(self) -> None:
        """The op at hand makes the next node of autograd: backward will ask where."""
        if self._stack and torch.is_grad_enabled():
            if len(self._nodes) > _REMEMBERED:
                self._nodes.clear()
            self._nodes[torch._C._autograd._get_sequence_nr() - 1] = self._stack[-1]

    def here(self, in_engine: bool) -> int:
        if self._stack:
            return self._stack[-1]
        if in_engine:
            node = torch._C._current_autograd_node()
            if node is not None:
                return self._nodes.get(node._sequence_nr(), 0)
        return 0

"""Size rules of kernels from elsewhere: a file of the user's, in which `size_rule(name, function)` says what an op allocates."""
from __future__ import annotations

import runpy
from collections.abc import Callable
from typing import Any

import torch

from .patches import Patches


class Rules:
    """A rule may be given before its library defines the op: it is registered when it does."""

    def __init__(self) -> None:
        self._waiting: dict[str, Callable[..., Any]] = {}
        self._libraries: list[Any] = []  # kept: what they registered goes with them

    def size_rule(self, name: str, function: Callable[..., Any]) -> None:
        name = name.removesuffix('.default').replace('.', '::') if '::' not in name else name
        if _is_defined(name):
            self._register(name, function)
        else:
            self._waiting[name] = function

    def read(self, path: str) -> None:
        runpy.run_path(path, init_globals={'size_rule': self.size_rule})

    def _register(self, name: str, function: Callable[..., Any]) -> None:
        library: Any = torch.library.Library(name.split('::')[0], 'FRAGMENT')  # type: ignore[no-untyped-call]
        self._libraries.append(library)
        more: dict[str, Any] = {'allow_override': True} if _can_override() else {}
        torch.library.register_fake(name, function, lib=library, **more)

    def _destroy(self) -> None:
        for library in self._libraries:
            library._destroy()

    def install(self, patches: Patches) -> None:
        define: Any = torch.library.Library.define
        rules = self

        def new_define(library: Any, schema: str, *args: Any, **kwargs: Any) -> Any:
            result = define(library, schema, *args, **kwargs)
            name = f"{library.ns}::{schema.split('(')[0].strip()}"
            if name in rules._waiting:
                rules._register(name, rules._waiting.pop(name))
            return result
        patches.set(torch.library.Library, 'define', new_define)
        patches.call_on_restore(self._destroy)


def _can_override() -> bool:
    import inspect
    return 'allow_override' in inspect.signature(torch.library.register_fake).parameters


def _is_defined(name: str) -> bool:
    namespace, _, op = name.partition('::')
    return hasattr(getattr(torch.ops, namespace), op)

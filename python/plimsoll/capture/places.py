"""Where in the user's code something happens, as `train.py:47`: never a path of this machine."""
from __future__ import annotations

import os
import sys
import sysconfig

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_LIBRARIES = tuple({os.path.realpath(p) + os.sep for k, p in sysconfig.get_paths().items() if k in ('stdlib', 'platstdlib', 'purelib', 'platlib')})


class Places:
    """`here()` names the innermost line of the user's own code. Library code is what lies in Python's own folders."""

    def __init__(self, root: str | None = None) -> None:
        self.root = os.path.realpath(root or os.getcwd())
        self._names: dict[str, str | None] = {}
        self.caller = ''  # of backward: the engine's threads have no frames of the user's

    def name_of(self, filename: str) -> str | None:
        """None for a file that is not the user's."""
        if filename not in self._names:
            self._names[filename] = self._short(filename)
        return self._names[filename]

    def _short(self, filename: str) -> str | None:
        if filename.startswith('<'):
            return None
        path = os.path.realpath(filename)
        if path.startswith(_PACKAGE + os.sep) or path.startswith(_LIBRARIES):
            return None
        if f'{os.sep}torch{os.sep}' in path or f'{os.sep}site-packages{os.sep}' in path or f'{os.sep}dist-packages{os.sep}' in path:
            return None
        inside = os.path.relpath(path, self.root)
        return os.path.basename(path) if inside.startswith('..') else inside.replace(os.sep, '/')

    def here(self) -> str:
        frame = sys._getframe(1)
        library = ''
        while frame is not None:
            filename = frame.f_code.co_filename
            name = self.name_of(filename)
            if name is not None:
                return f'{name}:{frame.f_lineno}'
            if not library and not filename.startswith('<') and not filename.startswith(_PACKAGE) and f'{os.sep}torch{os.sep}' not in filename:
                library = f'{os.path.basename(filename)}:{frame.f_lineno}'
            frame = frame.f_back  # type: ignore[assignment]
        return self.caller or library

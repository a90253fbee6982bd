"""Captures run in this process for quickness, in a child where a whole script is meant. Without PyTorch only the formulas and cards are tested."""
from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PACKAGE))


@pytest.fixture
def script(tmp_path: pathlib.Path) -> Any:
    """Writes a script and captures it in a child; gives the exit code, the trace's lines and what was printed."""
    import json

    def run(text: str, *options: str, arguments: tuple[str, ...] = ()) -> Any:
        path = tmp_path / 'train.py'
        path.write_text(text)
        out = tmp_path / 'run.trace'
        environment = {**os.environ, 'PYTHONPATH': str(PACKAGE)}
        done = subprocess.run([sys.executable, '-m', 'plimsoll.capture', '-o', str(out), *options, '--', str(path), *arguments], capture_output=True, text=True,
                              env=environment, cwd=tmp_path, timeout=600)
        lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
        return done.returncode, lines, done.stdout + done.stderr
    return run

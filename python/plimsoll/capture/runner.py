"""Runs a script as Python would, under a capture; an error of the script keeps its own traceback."""
from __future__ import annotations

import os
import runpy
import sys
import traceback
from types import TracebackType

from .errors import CaptureDone, CaptureError
from .session import Capture

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def run(capture: Capture, script: str, arguments: list[str]) -> int:
    """0 when the steps were captured; else the code with which the script would have ended, its error printed."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        with capture:
            runpy.run_path(script, run_name='__main__')
        return 0
    except CaptureError as e:
        print(f'plimsoll capture: {e}', file=sys.stderr)
        return 2
    except SystemExit as e:
        code = e.code
        if code is None or isinstance(code, int):
            return code or 0
        print(code, file=sys.stderr)
        return 1
    except BaseException as e:
        if isinstance(e, CaptureDone):
            return 0
        show(e)
        return 130 if isinstance(e, KeyboardInterrupt) else 1
    finally:
        sys.argv, sys.path[:] = argv, path


def own_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without what runs the script."""
    if trace is None:
        return None
    rest = own_frames(trace.tb_next)
    filename = trace.tb_frame.f_code.co_filename
    if filename.startswith((_PACKAGE, '<frozen runpy>')) or filename == runpy.__file__:
        return rest
    return TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def show(error: BaseException) -> None:
    error.__traceback__ = own_frames(error.__traceback__)
    traceback.print_exception(type(error), error, error.__traceback__)

"""Ends of a capture: as wanted, or with a reason that tells the way out."""
from __future__ import annotations


class CaptureDone(BaseException):
    """The wanted steps are captured. Not an Exception: a script's own `except Exception` must not swallow it."""


class CaptureError(RuntimeError):
    """The capture cannot go on. The text names the place and what to do."""

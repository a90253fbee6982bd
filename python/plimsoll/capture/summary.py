"""What a person reads after a capture: how far it came, the peaks, what was skipped, read and assumed, with lines."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .session import Capture

_SHOWN = 8  # of a kind; the trace has all


def step_peaks(capture: Capture) -> list[int]:
    """Bytes at the sizes that were captured, one for each step."""
    hint, births = capture.sizes.hint, capture.ledger.births
    peaks: list[int] = []
    current = 0
    for event in capture.ledger.events:
        if event[0] == 'step':
            peaks.append(current)
        elif event[0] == 'alloc':
            current += hint(births[event[1]].bytes)
            if peaks:
                peaks[-1] = max(peaks[-1], current)
        elif event[0] == 'free':
            current -= hint(births[event[1]].bytes)
    return peaks


def _limited(lines: list[str]) -> Iterator[str]:
    yield from lines[:_SHOWN]
    if len(lines) > _SHOWN:
        yield f'    and {len(lines) - _SHOWN} more, which the trace lists'


def _at(where: str) -> str:
    return f'{where}: ' if where else ''


def _times(n: int) -> str:
    return f', {n} times' if n > 1 else ''


def _value(value: Any) -> str:
    return 'values' if value is None else f'{value:g}' if isinstance(value, float) else str(value)


def lines(capture: Capture) -> Iterator[str]:
    notes = capture.notes
    yield f'{capture.steps} steps captured, {len(capture.ledger.events):,} events, as on {capture.options.gpu}'
    for i, peak in enumerate(step_peaks(capture)):
        yield f'    step {i + 1}: at most {peak:,} bytes'
    if capture.sizes.named:
        yield 'sizes: ' + ', '.join(f'{name}={value}' for name, value in capture.sizes.named.items())
    guards, pins = capture.sizes.conditions()
    said = [(f'holds while: {len(guards)} conditions on sizes', [f'    {_at(w)}{t}' for t, w in guards]),
            ('sizes that must stay', [f'    {_at(w)}{t}' for t, w in pins]),
            ('counts that the data decide', [f'    {_at(c.where)}{c.name} is {c.at}{"" if c.known else ", assumed"}' for c in notes.counts]),
            ('assumed: numbers read from the device',
             [f'    {_at(r.where)}{r.dtype} taken as {_value(r.value)}{_times(r.times)}' for r in notes.reads.values() if not r.known]),
            ('known: numbers read from the device', [f'    {_at(r.where)}{r.dtype} {_value(r.value)}{_times(r.times)}' for r in notes.reads.values() if r.known]),
            ('skipped', [f'    {_at(w)}{t}{_times(n)}' for (t, w), n in notes.skipped.items()]),
            ('noted', [f'    {_at(w)}{t}{_times(n)}' for (t, w), n in notes.notes.items()])]
    for title, found in said:
        if found:
            yield title
            yield from _limited(found)

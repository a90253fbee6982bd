"""What tests ask of a capture: its events at given sizes, comparable between two captures."""
from __future__ import annotations

from typing import Any

from plimsoll.capture import formulas


def body(lines: list[dict[str, Any]], **sizes: int) -> list[tuple[Any, ...]]:
    """Births with their bytes at these sizes, deaths between two births as a set, relabels, phases, steps."""
    table = {line['formula']: line['bytes'] for line in lines if 'formula' in line and 'alloc' not in line}
    events: list[tuple[Any, ...]] = []
    deaths: list[int] = []
    for line in lines:
        if 'free' in line:
            deaths.append(line['free'])
            continue
        if not {'alloc', 'relabel', 'phase', 'step'} & line.keys():
            continue
        if deaths:
            events.append(('free', *sorted(deaths)))
            deaths = []
        if 'alloc' in line:
            n = line['bytes']
            events.append(('alloc', line['alloc'], formulas.evaluate(table[n['formula']], sizes) if isinstance(n, dict) else n, line['op']))
        elif 'relabel' in line:
            events.append(('relabel', line['relabel'], line['category']))
        else:
            events.append(tuple(line.items()))
    return events


def of(lines: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [line for line in lines if key in line]

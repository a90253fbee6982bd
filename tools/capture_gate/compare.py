"""Peak, peaks of phases and steps, and breakdown of a captured trace, as the recorder counts them, beside a row's."""
from __future__ import annotations

from typing import Any

CATEGORIES = {'parameter': 'param', 'buffer': 'buffer', 'input': 'input', 'gradient': 'grad', 'optimizer state': 'optstate', 'ema': 'ema', 'activation': 'forward',
              'backward temporary': 'backward', 'optimizer temporary': 'optim'}
PHASES = {'forward': 'forward', 'backward': 'backward', 'optimizer': 'optim', 'ema': 'optim'}


def steps_of(births: list[Any], events: list[tuple[Any, ...]], size: Any) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    current, by, label, phase = 0, dict[str, int](), dict[int, str](), 'setup'
    early: list[int] = []  # states that an optimizer's constructor made: the recorder calls them parameters until the first step has ended
    for event in events:
        if event[0] == 'phase':
            phase = event[1]
        elif event[0] == 'step':
            for number in early if steps else []:
                n = size(births[number].bytes)
                by['param'] -= n
                by['optstate'] = by.get('optstate', 0) + n
                label[number] = 'optstate'
            early = [] if steps else early
            steps.append({'peak': current, 'breakdown': dict(by), 'phases': {}})
        elif event[0] == 'alloc':
            b = births[event[1]]
            n, label[b.number] = size(b.bytes), CATEGORIES[b.category]
            current += n
            by[label[b.number]] = by.get(label[b.number], 0) + n
            if steps:
                last = steps[-1]
                name = PHASES.get(phase, phase)
                last['phases'][name] = max(last['phases'].get(name, 0), current)
                if current > last['peak']:
                    last.update(peak=current, breakdown=dict(by))
        elif event[0] == 'free':
            n = size(births[event[1]].bytes)
            current -= n
            by[label[event[1]]] -= n
        elif event[0] == 'relabel':
            n, new = size(births[event[1]].bytes), CATEGORIES[event[2]]
            if new == 'optstate' and phase == 'setup':
                new = 'param'
                early.append(event[1])
            by[label[event[1]]] -= n
            label[event[1]] = new
            by[new] = by.get(new, 0) + n
    return steps


def compare(row: dict[str, Any], steps: list[dict[str, Any]]) -> list[str]:
    """What differs: nothing when all is equal to the byte."""
    if not steps:
        return ['no steps']
    best = steps[0]
    for step in steps[1:]:
        if step['peak'] > best['peak']:
            best = step
    different = []
    if best['peak'] != row['peak']:
        different.append(f'peak {best["peak"]:,} for {row["peak"]:,}')
    if row.get('step_peaks') and [s['peak'] for s in steps] != row['step_peaks']:
        different.append(f'steps {[s["peak"] for s in steps]} for {row["step_peaks"]}')
    wanted = dict(row.get('phase_peak') or {})
    if 'ema_step' in wanted:
        wanted['optim'] = max(wanted.get('optim', 0), wanted.pop('ema_step'))
    if wanted and best['phases'] != wanted:
        different.append(f'phases {best["phases"]} for {wanted}')
    breakdown = dict(row.get('breakdown') or {})
    if 'ema_step' in breakdown:
        breakdown['optim'] = breakdown.get('optim', 0) + breakdown.pop('ema_step')
    found = {k: v for k, v in best['breakdown'].items() if v}
    if breakdown and found != breakdown:
        different.append(f'breakdown {found} for {breakdown}')
    return different

"""Recorded rows against captures of ordinary scripts, to the byte.

    python tools/capture_gate [--most N] [--each N] [--jobs N] [--out FILE] [--keep DIR] ROWS.jsonl ...

Each row's spec becomes a training script (scripts.py), which runs under plimsoll.capture in a child process; peak, peaks of phases
and steps and breakdown are compared with the row (compare.py). Small models first. Prints a table by family and every difference.
"""
from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import signal
import sys
import tempfile
import traceback
import warnings
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / 'python')]
from compare import compare, steps_of  # noqa: E402
from scripts import Refused, script  # noqa: E402


_keep: list[Any] = []


def family(spec: dict[str, Any]) -> str:
    m = spec['model']
    if 'tv' in m:
        return 'torchvision ' + m['tv'].rstrip('0123456789').split('_')[0]
    return m.get('config', m.get('py', '?')).removesuffix('Config')


def preload() -> None:
    """The modules that scripts import, once for all children."""
    import torch  # noqa: F401
    import torch.distributed.algorithms._checkpoint.checkpoint_wrapper  # noqa: F401
    import torch.fx.experimental.symbolic_shapes  # noqa: F401
    import torch.optim  # noqa: F401
    try:
        import torchvision  # noqa: F401
    except RuntimeError:  # its compiled part is of another build of PyTorch; the models need none of it
        for name in [n for n in sys.modules if n.startswith('torchvision')]:
            del sys.modules[name]
        library = torch.library.Library('torchvision', 'DEF')
        for op in ('nms', 'qnms'):
            library.define(f'{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')
        _keep.append(library)
        import torchvision  # noqa: F401
    import transformers.optimization
    import transformers.models.gpt2.modeling_gpt2  # noqa: F401


def captured(row: dict[str, Any], folder: str, sizes: bool) -> dict[str, Any]:
    from plimsoll.capture import Capture, Options
    from plimsoll.capture.runner import run
    spec = row['spec']
    path = os.path.join(folder, row['id'].replace('/', '_') + '.py')
    with open(path, 'w') as f:
        f.write(script(spec))
    capture = Capture(Options(steps=spec.get('steps', 2) + bool(spec.get('preopt')), gpu='h100-sxm', find_sizes=sizes, script=path, root=folder))
    code = run(capture, path, [])
    if code:
        return {'error': f'the script ended with {code}'}
    different = compare(row, steps_of(capture.ledger.births, capture.ledger.events, capture.sizes.hint))
    return {'different': different, 'reads': [f'{r.where} {r.dtype} {r.value} {r.known}' for r in capture.notes.reads.values()],
            'counts': len(capture.notes.counts)}


def in_child(row: dict[str, Any], folder: str, seconds: int, sizes: bool) -> dict[str, Any]:
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(receive)
        errors = open(os.path.join(folder, row['id'].replace('/', '_') + '.err'), 'w')
        os.dup2(errors.fileno(), 2)
        os.dup2(errors.fileno(), 1)
        signal.alarm(seconds)
        try:
            result = captured(row, folder, sizes)
        except Refused as e:
            result = {'refused': str(e)}
        except BaseException as e:
            traceback.print_exc()
            result = {'error': f'{type(e).__name__}: {e}'[:300]}
        sys.stderr.flush()
        with os.fdopen(send, 'w') as f:
            f.write(json.dumps(result))
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as f:
        text = f.read()
    os.waitpid(pid, 0)
    result: dict[str, Any] = json.loads(text) if text else {'error': f'no result in {seconds} s'}
    if 'error' in result:
        with open(os.path.join(folder, row['id'].replace('/', '_') + '.err')) as f:
            lines = [l for l in f.read().strip().split('\n') if l]
        result['error'] += ': ' + (lines[-1][:200] if lines else '')
    return result


def chosen(paths: list[str], each: int, most: int, only: str) -> list[dict[str, Any]]:
    """Of each family and file the smallest."""
    rows = []
    for path in paths:
        with open(path) as f:
            for line in f:
                if line.strip():
                    row = json.loads(line)
                    if 'error' not in row and only in row['id'] and 'parallel' not in row['spec']:
                        rows.append({**row, 'file': pathlib.Path(path).stem})
    rows.sort(key=lambda r: r['params'] * 4 + r['peak'] / 8)
    taken: collections.Counter[tuple[str, str]] = collections.Counter()
    out = []
    for row in rows:
        key = family(row['spec']), row['file']
        try:
            script(row['spec'])
        except Refused:
            if taken[key[0], 'refused'] >= each:
                continue
            taken[key[0], 'refused'] += 1
        else:
            if taken[key] >= each:
                continue
            taken[key] += 1
        out.append(row)
    return out[:most]


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('rows', nargs='+')
    p.add_argument('--most', type=int, default=10**9, help='rows in all')
    p.add_argument('--each', type=int, default=10**9, help='rows of each family and file')
    p.add_argument('--only', default='', help='rows whose id has this in it')
    p.add_argument('--seconds', type=int, default=180, help='for one row')
    p.add_argument('--sizes', action='store_true', help='with batch and length as symbols')
    p.add_argument('--out', default='', help='results as JSON lines; rows that are in it are not run again')
    p.add_argument('--keep', default='', help='folder for the scripts and what they printed')
    options = p.parse_args()
    warnings.filterwarnings('ignore')
    preload()
    done: dict[str, dict[str, Any]] = {}
    if options.out and os.path.exists(options.out):
        with open(options.out) as f:
            done = {r['id']: r for r in map(json.loads, f)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or temporary
        os.makedirs(folder, exist_ok=True)
        for row in chosen(options.rows, options.each, options.most, options.only):
            if row['id'] in done:
                continue
            result = {'id': row['id'], 'file': row['file'], 'family': family(row['spec']), 'torch': row.get('torch'), **in_child(row, folder, options.seconds, options.sizes)}
            done[row['id']] = result
            if options.out:
                with open(options.out, 'a') as f:
                    f.write(json.dumps(result) + '\n')
            if result.get('different') or 'error' in result:
                print(row['id'], result.get('error') or '; '.join(result['different']), flush=True)
    return report(list(done.values()))


def report(results: list[dict[str, Any]]) -> int:
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    reasons: collections.Counter[str] = collections.Counter()
    for r in results:
        kind = 'refused' if 'refused' in r else 'failed' if 'error' in r else 'different' if r['different'] else 'equal'
        table[r['family']][kind] += 1
        if kind == 'refused':
            reasons[r['refused']] += 1
    kinds = ('equal', 'different', 'failed', 'refused')
    print('| family | ' + ' | '.join(kinds) + ' |\n|---|' + '--:|' * len(kinds))
    for name, counts in sorted(table.items()):
        print(f'| {name} | ' + ' | '.join(str(counts[k]) for k in kinds) + ' |')
    total = sum(table.values(), collections.Counter())
    print(f'| all of {len(table)} | ' + ' | '.join(str(total[k]) for k in kinds) + ' |')
    for reason, n in reasons.most_common():
        print(f'refused {n}: {reason}')
    return 1 if total['different'] or total['failed'] else 0


if __name__ == '__main__':
    sys.exit(main())

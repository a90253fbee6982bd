"""python -m plimsoll.capture [options] [--] train.py [arguments of train.py]"""
from __future__ import annotations

import argparse
import os
import sys


def _pairs(texts: list[str], flag: str, kind: type) -> dict[str, float]:
    found = {}
    for text in texts:
        name, equals, value = text.rpartition('=')
        try:
            if not equals:
                raise ValueError
            found[name] = kind(value)
        except ValueError:
            raise SystemExit(f'plimsoll capture: {flag} {text}: write NAME=NUMBER') from None
    return found


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog='python -m plimsoll.capture', formatter_class=argparse.RawDescriptionHelpFormatter,
                                description='Runs a training script without a GPU for a few steps and writes what it allocates: a trace for `plimsoll`.')
    p.add_argument('--steps', type=int, default=2, metavar='N', help='optimizer steps to capture (2)')
    p.add_argument('--gpu', default='rtx-4090', metavar='NAME', help='the card that torch.cuda looks like (rtx-4090)')
    p.add_argument('--list-gpus', action='store_true', help='the names of cards, and end')
    p.add_argument('--size', action='append', default=[], metavar='NAME=N',
                   help='a size of the batch that `plimsoll` may change later, by its value in this run: batch=6. Without it the sizes of the first batch are taken')
    p.add_argument('--fixed', action='store_true', help='all sizes as they are: faster, for this size alone')
    p.add_argument('--value', action='append', default=[], metavar='PLACE=NUMBER', help='what a line reads from the device: train.py:47=0.5')
    p.add_argument('--rules', action='append', default=[], metavar='FILE', help="size rules of other libraries' kernels")
    p.add_argument('-o', '--output', default='', metavar='FILE', help='the trace (the name of the script, with .trace)')
    p.add_argument('script', nargs='?', help='the training script, as for python')
    p.add_argument('arguments', nargs=argparse.REMAINDER, help='its arguments')
    return p


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    if options.script == '--' and options.arguments:
        options.script, options.arguments = options.arguments[0], options.arguments[1:]
    if options.list_gpus:
        from .cards import all_cards
        print('\n'.join(all_cards()))
        return 0
    if not options.script:
        parser().print_usage(sys.stderr)
        return 2
    if not os.path.isfile(options.script):
        print(f'plimsoll capture: there is no script {options.script}', file=sys.stderr)
        return 2
    try:
        import torch
    except ImportError:
        print('plimsoll capture: this Python has no PyTorch; run it with the Python that runs the script', file=sys.stderr)
        return 2
    return _capture(options)


def _capture(options: argparse.Namespace) -> int:
    from .errors import CaptureError
    from .runner import run
    from .session import Capture, Options
    from .summary import lines
    script = options.script
    try:
        capture = Capture(Options(steps=options.steps, gpu=options.gpu, sizes={k: int(v) for k, v in _pairs(options.size, '--size', int).items()},
                                  find_sizes=not options.fixed, values=_pairs(options.value, '--value', float), rules=options.rules,
                                  script=os.path.basename(script), root=os.path.dirname(os.path.abspath(script))))
    except CaptureError as e:
        print(f'plimsoll capture: {e}', file=sys.stderr)
        return 2
    code = run(capture, script, options.arguments)
    sys.stdout.flush()
    for line in lines(capture):
        print(line, file=sys.stderr)
    if not capture.steps:
        print('plimsoll capture: no optimizer stepped, so nothing was written', file=sys.stderr)
        return code or 1
    if code:
        return code
    path = options.output or os.path.splitext(os.path.basename(script))[0] + '.trace'
    capture.save(path)
    print(f'written to {path}', file=sys.stderr)
    return 0

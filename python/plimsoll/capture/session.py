"""One capture: puts the pretended card, the mode and the loop's hooks in place, takes them away again, and keeps what was seen."""
from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch

from . import kernels, native, writer
from .boundary import Boundary
from .cards import card
from .device import Device
from .errors import CaptureDone, CaptureError
from .ledger import Ledger
from .libraries import Libraries
from .loop import Loop
from .notes import Notes
from .patches import Patches
from .places import Places
from .rules import Rules
from .scopes import Scopes
from .shadows import Shadows
from .symbols import SMALLEST, Sizes
from .tensors import Recorder
from .values import Values

OLDEST = (2, 6)
DEFAULT_GPU = 'rtx-4090'


@dataclass
class Options:
    steps: int = 2
    gpu: str = DEFAULT_GPU
    sizes: dict[str, int] = field(default_factory=dict)
    find_sizes: bool = True
    values: dict[str, float] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)
    script: str = ''
    root: str | None = None


def check(options: Options) -> None:
    release = tuple(int(''.join(c for c in part if c.isdigit()) or 0) for part in torch.__version__.split('+')[0].split('.')[:2])
    if release < OLDEST:
        raise CaptureError(f'torch {torch.__version__} is too old for capture; {OLDEST[0]}.{OLDEST[1]} is the oldest tried')
    if options.steps < 1:
        raise CaptureError(f'--steps {options.steps}: capture at least one step')
    seen: dict[int, str] = {}
    for name, value in options.sizes.items():
        if not name.isidentifier() or name in ('pow', 'fdiv', 'cdiv', 'mod', 'min', 'max', 'and', 'or'):
            raise CaptureError(f'--size {name}={value}: a name is letters, digits and _, and no word of formulas')
        if value < SMALLEST:
            raise CaptureError(f'--size {name}={value}: PyTorch treats 0 and 1 apart; choose at least {SMALLEST}')
        if value in seen:
            raise CaptureError(f'two sizes are both {value} ({seen[value]}, {name}): choose different ones, so that each dimension is known by its value')
        seen[value] = name


class Capture:
    """`with plimsoll.capture(...) as c:` ... `c.save('run.trace')`. Ends by itself after the wanted steps."""

    def __init__(self, options: Options) -> None:
        check(options)
        self.options = options
        self.notes = Notes()
        self.places = Places(options.root)
        self.sizes = Sizes(options.sizes, options.find_sizes, self.places, self.notes)
        self.ledger = Ledger(self.sizes.amount, self.sizes.hint)
        self.shadows = Shadows(self.sizes.hint)
        self.values = Values(self.shadows, self.notes, self.places, options.values, self.sizes.hint)
        self.scopes = Scopes()
        self.recorder = Recorder(self.ledger, self.sizes, self.shadows, self.values, self.scopes, self.places)
        self.loop = Loop(self.recorder, options.steps)
        self._patches = Patches()
        self.finished = False

    @property
    def steps(self) -> int:
        return self.loop.steps

    def __enter__(self) -> Capture:
        try:
            self._install()
        except BaseException:
            self._patches.restore()
            raise
        gc.collect()
        self.recorder.__enter__()  # type: ignore[no-untyped-call]
        return self

    def _install(self) -> None:
        patches = self._patches
        has_device = native.has_device()
        Device(card(self.options.gpu), self.ledger, self.notes, self.places).install(patches)
        import torch._subclasses.fake_tensor as fake
        patches.set_if_there(fake, 'init_gpu_context', lambda *args: None)
        if not has_device:
            patches.call_on_restore(native.install())
        kernels.install(patches)
        rules = Rules()
        rules.install(patches)
        for path in self.options.rules:
            rules.read(path)
        Boundary(self.recorder, self.notes, self.places).install(patches)
        Libraries(self.notes, self.places).install(patches)
        self.loop.install(patches)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        self.ledger.freeze()
        self.loop.end_step()
        self.recorder.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._patches.restore()
        self.finished = kind is None or issubclass(kind, CaptureDone)
        return kind is not None and issubclass(kind, CaptureDone)

    def lines(self) -> Iterator[Mapping[str, Any]]:
        header = writer.Header(torch.__version__.split('+')[0], self.options.script, self.options.gpu, self.steps)
        return writer.Writer(self.sizes, self.notes).lines(header, self.scopes.lines, self.ledger.births, self.ledger.events)

    def save(self, path: str) -> None:
        if not self.steps:
            raise CaptureError('no optimizer stepped: there is no training step to save')
        with open(path, 'w', encoding='utf-8') as f:
            f.write(writer.text(self.lines()))  # type: ignore[arg-type]

"""The training loop as it shows itself: forward, backward, the optimizer's step; where a step begins and when it is enough."""
from __future__ import annotations

import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .errors import CaptureDone
from .ledger import Birth, Ledger
from .patches import Patches
from .scopes import Scopes
from .tensors import Recorder


def _state_tensors(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _state_tensors(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from _state_tensors(v)


class Loop:
    """A step ends with the first forward or backward after an optimizer has stepped. After the last one that call raises `CaptureDone`."""

    def __init__(self, recorder: Recorder, wanted: int) -> None:
        self._recorder, self._wanted = recorder, wanted
        self._ledger: Ledger = recorder.ledger
        self._scopes: Scopes = recorder.scopes
        self.steps = 0
        self._stepped = self._began = False
        self._phase_before = ''  # of a call of autograd that is about to start
        self._roots: weakref.WeakSet[Any] = weakref.WeakSet()
        self._hooked: dict[int, tuple[Any, int]] = {}  # by id: Tensor's == is no comparison of identity
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._averages: set[int] = set()
        recorder.on_temporary = lambda: self._ledger.begin_phase('optimizer')
        recorder.on_write = self._written

    # ---- steps
    def _begin(self) -> None:
        if self._began and not self._stepped:
            return
        self.end_step()
        self.stop_if_enough()
        self._began = True
        for optimizer in self._optimizers:  # some make their states at once
            for state in optimizer.state.values():
                for t in _state_tensors(state):
                    self._label(t, 'optimizer state')
        self._ledger.begin_step()
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for p in group['params']:
                    self._follow(p)

    def end_step(self) -> None:
        if self._stepped:
            self._stepped = False
            self.steps += 1
            self._recorder.values.step()

    def stop_if_enough(self) -> None:
        if self.steps + self._stepped >= self._wanted:
            self.end_step()
            self._ledger.freeze()
            raise CaptureDone

    # ---- what the loop does
    def forward(self, module: Any) -> None:
        if not self._scopes.inside:
            if not self._recorder.engine:
                self._begin()
                self._ledger.begin_phase('forward')
            if module not in self._roots:
                self._roots.add(module)
                self._know(module)
        self._scopes.enter(module)

    def forward_done(self) -> None:
        self._scopes.leave()

    def backward(self, engine: Any, accumulates: bool, args: Any, kwargs: Any) -> Any:
        nested = self._recorder.engine > 0
        before, self._phase_before = self._phase_before or self._ledger.phase, ''
        if not nested:
            self._begin()
            self._ledger.begin_phase('backward')
            self._recorder.places.caller = self._recorder.places.here()
        saved = self._scopes.leave_all()
        self._recorder.engine += 1
        try:
            return engine(*args, **kwargs)
        finally:
            self._recorder.engine -= 1
            self._scopes.return_to(saved)
            if not nested:
                self._recorder.places.caller = ''
            if not nested and not accumulates and before != 'setup':
                self._ledger.begin_phase(before)

    def first_gradients(self, make: Any, args: Any, kwargs: Any) -> Any:
        """The gradient of the loss itself is made before the engine starts."""
        if self._recorder.engine:
            return make(*args, **kwargs)
        self._phase_before = self._ledger.phase
        self._begin()
        self._ledger.begin_phase('backward')
        self._recorder.engine += 1
        try:
            return make(*args, **kwargs)
        finally:
            self._recorder.engine -= 1

    def scale_loss(self) -> None:
        if not self._scopes.inside and self._ledger.phase == 'forward':
            self._ledger.begin_phase('backward')

    def optimizer_begins(self, optimizer: Any) -> None:
        self._recorder.in_optimizer += 1
        self._ledger.begin_phase('optimizer')
        for group in optimizer.param_groups:
            for p in group['params']:
                self._label(p, 'parameter')
                self._label(p.grad, 'gradient')

    def optimizer_ends(self, optimizer: Any) -> None:
        self._recorder.in_optimizer = max(0, self._recorder.in_optimizer - 1)
        for state in optimizer.state.values():
            for t in _state_tensors(state):
                self._label(t, 'optimizer state')
        self._stepped = True
        if self._recorder.engine:  # stepped in a hook while backward runs
            self._ledger.begin_phase('backward')

    # ---- labels
    def _label(self, t: Any, category: str) -> None:
        if isinstance(t, FakeTensor) and t.device.type == 'cuda':
            self._ledger.relabel(t.untyped_storage()._cdata, category)

    def label_state(self, *tensors: Any) -> None:
        for t in tensors:
            self._label(t, 'optimizer state')

    def _know(self, module: Any) -> None:
        self._scopes.know(module)
        for p in module.parameters():
            if not self._is_average(p):
                self._label(p, 'parameter')
            self._follow(p)
        for b in module.buffers():
            self._label(b, 'buffer')

    def _is_average(self, t: Any) -> bool:
        if not isinstance(t, FakeTensor):
            return False
        birth = self._ledger.live.get(t.untyped_storage()._cdata)
        return birth is not None and birth.number in self._averages

    def _follow(self, p: Any) -> None:
        """A gradient is one from the moment it is accumulated."""
        if not (isinstance(p, FakeTensor) and p.requires_grad and p.is_leaf):
            return
        hooked = self._hooked.get(id(p))
        if hooked is None or hooked[0]() is not p or hooked[1] != p._cdata:
            self._hooked[id(p)] = (weakref.ref(p), p._cdata)
            follow: Any = p.register_post_accumulate_grad_hook
            follow(lambda q: self._label(q.grad, 'gradient'))

    def _written(self, t: Any) -> None:
        """A copy of a weight that is written outside of the optimizer, after it has stepped, is an average of the weights."""
        if not self._stepped or self._recorder.in_optimizer or self._scopes.inside:
            return
        for x in t if isinstance(t, (list, tuple)) else (t,):
            if not isinstance(x, FakeTensor):
                continue
            birth = self._ledger.live.get(x.untyped_storage()._cdata)
            if birth is None or birth.copy_of < 0 or birth.number in self._averages:
                continue
            if self._is_early_copy(birth):
                for copy in [b for b in self._ledger.live.values() if self._is_early_copy(b)]:  # those of frozen weights are never written
                    self._averages.add(copy.number)
                    copy.category = copy.label = 'ema'

    def _is_early_copy(self, birth: Birth) -> bool:
        if birth.copy_of < 0 or birth.phase != 'setup' or birth.label != 'input':
            return False
        source = self._ledger.births[birth.copy_of]
        while source.copy_of >= 0 and source.label == 'input':  # cast after it was copied
            source = self._ledger.births[source.copy_of]
        return source.label in ('parameter', 'buffer')

    # ---- where it is seen
    def install(self, patches: Patches) -> None:
        from torch.nn.modules import module as modules
        from torch.optim import optimizer as optimizers
        for handle in (modules.register_module_forward_pre_hook(lambda m, args: self.forward(m)),
                       modules.register_module_forward_hook(lambda m, args, out: self.forward_done(), always_call=True),
                       optimizers.register_optimizer_step_pre_hook(lambda o, args, kwargs: self.optimizer_begins(o)),
                       optimizers.register_optimizer_step_post_hook(lambda o, args, kwargs: self.optimizer_ends(o))):
            patches.call_on_restore(handle.remove)
        self._patch_engine(patches)
        self._patch_optimizer(patches)
        self._patch_scaler(patches)
        self._patch_loader(patches)

    def _patch_engine(self, patches: Patches) -> None:
        engine = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

        def run(*args: Any, **kwargs: Any) -> Any:
            return self.backward(engine, bool(kwargs.get('accumulate_grad')), args, kwargs)
        make = torch.autograd._make_grads
        patches.set(torch.autograd, '_engine_run_backward', run)
        patches.set(torch.autograd, '_make_grads', lambda *args, **kwargs: self.first_gradients(make, args, kwargs))

    def _patch_optimizer(self, patches: Patches) -> None:
        add = torch.optim.Optimizer.add_param_group

        def add_param_group(optimizer: Any, group: Any) -> Any:
            self._optimizers.add(optimizer)
            return add(optimizer, group)
        patches.set(torch.optim.Optimizer, 'add_param_group', add_param_group)

    def _patch_scaler(self, patches: Patches) -> None:
        """The scale and whether a gradient overflowed are on the device: no overflow is assumed, the step is taken."""
        from torch.amp.grad_scaler import GradScaler
        scale, unscale, step, value = GradScaler.scale, GradScaler.unscale_, GradScaler.step, GradScaler.get_scale

        def state(scaler: Any) -> None:
            self.label_state(*(t for t in (scaler._scale, scaler._growth_tracker) if t is not None))

        def new_scale(scaler: Any, outputs: Any) -> Any:
            self.scale_loss()
            self._recorder.engine += 1
            try:
                out = scale(scaler, outputs)
            finally:
                self._recorder.engine -= 1
            state(scaler)
            return out

        def within(plain: Any) -> Any:
            def run(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
                self._ledger.begin_phase('optimizer')
                self._recorder.in_optimizer += 1
                try:
                    return plain(scaler, optimizer, *args, **kwargs)
                finally:
                    self._recorder.in_optimizer -= 1
            return run
        patches.set(GradScaler, 'scale', new_scale)
        patches.set(GradScaler, 'unscale_', within(unscale))
        patches.set(GradScaler, 'step', within(step))
        patches.set(GradScaler, 'get_scale', lambda scaler: scaler._init_scale if scaler._enabled and scaler._scale is not None else value(scaler))
        patches.set(GradScaler, '_maybe_opt_step', lambda scaler, optimizer, state, *args, **kwargs: optimizer.step(*args, **kwargs))

    def _patch_loader(self, patches: Patches) -> None:
        from torch.utils.data.dataloader import _BaseDataLoaderIter
        fetch = _BaseDataLoaderIter.__next__

        def next_batch(iterator: Any) -> Any:
            if self._stepped:
                self.stop_if_enough()
            return fetch(iterator)
        patches.set(_BaseDataLoaderIter, '__next__', next_batch)

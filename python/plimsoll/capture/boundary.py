"""Where Python meets the device below the dispatcher: constructors that allocate there, numbers that come back, modules that move."""
from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from .device import DEVICE
from .notes import Notes
from .patches import Patches
from .places import Places
from .tensors import Recorder

_FAKE_STATE = ('fake_mode', 'fake_device', 'constant', 'real_tensor', 'pytype', 'dispatch_keys', '_nonzero_memo', '_item_memo', '_unique_memo',
               '_nested_int_memo', '_unique_consecutive_memo', 'nonzero_memo', 'item_memo', 'unique_memo', 'nested_int_memo', '_is_param')


class Boundary:
    def __init__(self, recorder: Recorder, notes: Notes, places: Places) -> None:
        self._recorder, self._notes, self._places = recorder, notes, places

    def install(self, patches: Patches) -> None:
        for name in ('tensor', 'as_tensor', 'asarray'):
            patches.set(torch, name, _constructor(getattr(torch, name)))
        self._values(patches)
        tensor = torch.Tensor
        patches.set(tensor, 'pin_memory', lambda t, *a, **k: t)
        patches.set(tensor, 'is_pinned', lambda t, *a, **k: False)
        patches.set(tensor, 'record_stream', lambda t, *a, **k: None)
        self._copies(patches)
        self._indices(patches)
        self._data(patches)
        self._resize(patches)
        patches.set(torch.nn.Module, '_apply', self._apply())

    def _values(self, patches: Patches) -> None:
        host = self._recorder.values.to_host
        tolist, numpy = torch.Tensor.tolist, torch.Tensor.numpy

        def new_tolist(t: Any) -> Any:
            return tolist(host(t)) if isinstance(t, FakeTensor) else tolist(t)

        def new_numpy(t: Any, *args: Any, **kwargs: Any) -> Any:
            return numpy(host(t)) if isinstance(t, FakeTensor) else numpy(t, *args, **kwargs)

        def new_format(t: Any, spec: str) -> str:
            return format(t.item(), spec) if spec and t.dim() == 0 else object.__format__(t, '')
        for owner in (torch.Tensor, FakeTensor):
            patches.set(owner, 'tolist', new_tolist)
            patches.set(owner, 'numpy', new_numpy)
        patches.set(FakeTensor, '__format__', new_format)

    def _copies(self, patches: Patches) -> None:
        """copy.deepcopy would copy the storage's bytes, of which there are none: a copy is a clone."""
        def deepcopy(t: Any, memo: Any) -> Any:
            if id(t) not in memo:
                with torch.no_grad():
                    new = t.detach().clone()
                memo[id(t)] = torch.nn.Parameter(new, t.requires_grad) if isinstance(t, torch.nn.Parameter) else new.requires_grad_(t.requires_grad)
            return memo[id(t)]
        patches.set(FakeTensor, '__deepcopy__', deepcopy)

    def _indices(self, patches: Patches) -> None:
        """x[[0, -1]] makes the tensor of indices below the dispatcher."""
        get, put = torch.Tensor.__getitem__, torch.Tensor.__setitem__
        patches.set(FakeTensor, '__getitem__', lambda t, index: get(t, _without_lists(t, index)))
        patches.set(FakeTensor, '__setitem__', lambda t, index, value: put(t, _without_lists(t, index), value))

    def _data(self, patches: Patches) -> None:
        """`p.data = x` between a host and a device tensor: PyTorch refuses it when one has no values."""
        own: Any = torch._C.TensorBase.data

        def put(t: Any, value: Any) -> None:
            if isinstance(t, FakeTensor) == isinstance(value, FakeTensor) and t.device == value.device:
                own.__set__(t, value)
            else:
                swap(t, value.detach().requires_grad_(t.requires_grad))
        patches.set(torch.Tensor, 'data', property(own.__get__, put))

    def _resize(self, patches: Patches) -> None:
        """A storage that is emptied and filled again dies and is born: no dispatch sees it."""
        resize, ledger, recorder = torch.UntypedStorage.resize_, self._recorder.ledger, self._recorder

        def resize_(storage: Any, size: int) -> Any:
            known = ledger.is_known(storage._cdata)
            before = ledger.live.get(storage._cdata)
            if known:
                ledger.freed(storage._cdata)
            result = resize(storage, size)
            if known:
                label = before.label if before is not None else 'activation'
                ledger.born(storage, label, 'resize_', recorder.scopes.here(recorder.engine > 0))
            return result
        patches.set(torch.UntypedStorage, 'resize_', resize_)

    def _apply(self) -> Any:
        """Module._apply that keeps every parameter the same object, so that ties, and optimizers made before, still hold."""
        recorder = self._recorder

        def apply(module: Any, fn: Any, recurse: bool = True) -> Any:
            recorder.moving += 1
            try:
                return convert(module, fn, recurse)
            finally:
                recorder.moving -= 1

        def convert(module: Any, fn: Any, recurse: bool) -> Any:
            if recurse:
                for child in module.children():
                    child._apply(fn)
            for p in module._parameters.values():
                if p is None:
                    continue
                gradient = p.grad
                with torch.no_grad():
                    moved = fn(p)
                if moved is p:
                    continue
                if isinstance(moved, FakeTensor):
                    swap(p, torch.nn.Parameter(moved, p.requires_grad))
                else:
                    p.data = moved
                if gradient is not None:
                    with torch.no_grad():
                        p.grad = fn(gradient)
            for key, b in module._buffers.items():
                if b is not None:
                    module._buffers[key] = fn(b)
            return module
        return apply


def _without_lists(t: Any, index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_without_lists(t, i) for i in index)
    if isinstance(index, list) and index and all(isinstance(i, (int, bool)) for i in index):
        return torch.tensor(index, device=t.device)
    return index


def swap(p: Any, new: Any) -> None:
    """Gives `p` the contents of `new`; what a person has set on `p` stays on `p`."""
    state = {k: v for k, v in new.__dict__.items() if k in _FAKE_STATE or k.startswith('_fake')}
    old = {k: p.__dict__.pop(k) for k in list(p.__dict__) if k in _FAKE_STATE or k.startswith('_fake')}
    p.__class__, new.__class__ = new.__class__, p.__class__
    for k in state:
        del new.__dict__[k]
    p.__dict__.update(state)
    new.__dict__.update(old)
    torch._C._swap_tensor_impl(p, new)


def _constructor(plain: Any) -> Any:
    def construct(*args: Any, device: Any = None, requires_grad: bool = False, **kwargs: Any) -> Any:
        wanted = torch.device(device) if device is not None else torch.get_default_device()
        more = {'requires_grad': True} if requires_grad else {}
        if wanted.type != DEVICE:
            return plain(*args, **({'device': device} if device is not None else {}), **kwargs, **more)
        if args and isinstance(args[0], torch.Tensor) and device is None:
            t = plain(*args, **kwargs)
        else:
            with torch.device('cpu'):
                t = args[0].detach() if args and isinstance(args[0], FakeTensor) else plain(*args, **kwargs)
            t = t.to(wanted, kwargs.get('dtype') or t.dtype)
        return t.requires_grad_() if requires_grad else t
    return construct


def to_device(value: Any, device: Any = DEVICE) -> Any:
    return tree_map_only(torch.Tensor, lambda t: t.to(device), value)

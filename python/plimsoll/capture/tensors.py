"""The mode under which a script runs: host tensors are real, device tensors have shapes and no values.

Every op on device tensors goes through `__torch_dispatch__`: the fake mode answers with shapes, the ledger is told what was
born, the shadows follow the integers. What leaves the device is answered by `Values`.
"""
from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, UnsupportedOperatorException
from torch.utils._python_dispatch import TorchDispatchMode

from . import kernels
from .device import DEVICE
from .errors import CaptureError
from .kernels import aten
from .ledger import Ledger
from .places import Places
from .scopes import Scopes
from .shadows import Shadows
from .symbols import Sizes
from .values import Values

CATEGORY_OF_PHASE = {'setup': 'input', 'forward': 'activation', 'backward': 'backward temporary', 'optimizer': 'optimizer temporary', 'ema': 'optimizer temporary'}
LARGE = 1 << 16  # elements: a host tensor of a module's constructor from here on has no values, so that large models need no memory
_HALF = 2        # of an unknown mask, one in two is taken


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    supports_higher_order_operators = True

    def __init__(self, ledger: Ledger, sizes: Sizes, shadows: Shadows, values: Values, scopes: Scopes, places: Places) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ledger, self.sizes, self.shadows, self.values, self.scopes, self.places = ledger, sizes, shadows, values, scopes, places
        self.fake = FakeTensorMode(allow_non_fake_inputs=True, shape_env=sizes.env, static_shapes=None if sizes.env is not None else True)
        self.engine = 0        # depth of the autograd engine
        self.in_optimizer = 0
        self.moving = 0        # Module.to and its like
        self.paused = 0
        self.op = ''
        self.on_temporary: Any = None  # told of a birth outside of any module, between backward and the next forward
        self.on_write: Any = None
        self._counted: dict[tuple[int, int], tuple[Any, Any]] = {}
        ledger.on_death.append(shadows.storage_died)

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        self.paused += 1
        try:
            yield
        finally:
            self.paused -= 1

    # ---- dispatch
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        if kwargs.get('pin_memory'):  # host memory is as good here
            kwargs = {**kwargs, 'pin_memory': False}
        device = kwargs.get('device')
        on_device = any(issubclass(t, FakeTensor) for t in types) or (device is not None and torch.device(device).type == DEVICE)
        if not on_device:
            if func is aten.empty.memory_format and self._is_large_weight(args[0], kwargs):
                with self.fake:
                    return func(*args, **kwargs)
            return func(*args, **kwargs)
        self.op = str(func).removesuffix('.default')
        self.scopes.forward_node()
        answered, out = self._leaves_device(func, args, kwargs)
        if answered:
            return out
        if kwargs.get('generator') is not None:
            kwargs = {k: v for k, v in kwargs.items() if k != 'generator'}
        original = args
        args = self._enters_device(func, args, kwargs)
        out = self._shapes(func, args, kwargs)
        if isinstance(func, torch._ops.OpOverload) and func not in kernels.COUNTED:
            self.shadows.follow(func, original, kwargs, out, not self.engine and not self.in_optimizer)
            if self.on_write is not None and func._schema.is_mutable and not self.engine:
                self.on_write(args[0] if args else None)
        self._told(func, original, out)
        return out

    def _leaves_device(self, func: Any, args: Any, kwargs: Any) -> tuple[bool, Any]:
        if func is aten._local_scalar_dense.default:
            return True, self.values.scalar(args[0])
        device = kwargs.get('device')
        if func is aten._to_copy.default and device is not None and torch.device(device).type == 'cpu' and args[0].device.type == DEVICE:
            host = self.values.to_host(args[0])
            return True, host.to(kwargs['dtype']) if kwargs.get('dtype') else host
        if func is aten.copy_.default and not isinstance(args[0], FakeTensor):
            host = self.values.to_host(args[1])
            if args[0].shape == host.shape:
                args[0].copy_(host)
            return True, args[0]
        if func is aten.equal.default:
            a, b = (self.shadows.of(t) if isinstance(t, FakeTensor) else t for t in args[:2])
            return True, bool(torch.equal(a, b)) if a is not None and b is not None else True
        if func is aten.is_pinned.default:
            return True, False
        if func is aten.record_stream.default:
            return True, None
        return False, None

    def _enters_device(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Host tensors become fake ones; those of a batch get symbols."""
        device = kwargs.get('device')
        outside = not self.scopes.inside and not self.engine and not self.in_optimizer and not self.moving
        if func is aten._to_copy.default and isinstance(args[0], torch.Tensor) and not isinstance(args[0], FakeTensor):
            t = args[0]
            if outside and not isinstance(t, torch.nn.Parameter) and t.dim():
                self.sizes.find(t.shape, t.dtype, self.places.here())
                if self.sizes.wants(t.shape):
                    return (self.sizes.batch(t.detach(), self.fake),) + tuple(args[1:])
            return (self.fake.from_tensor(t, static_shapes=True),) + tuple(args[1:])
        if outside and device is not None and args and self._is_factory(func):
            at = next((i for i, a in enumerate(args) if isinstance(a, (list, tuple))), None)
            if at is not None and all(type(s) is int for s in args[at]):
                dtype = kwargs.get('dtype') or (torch.int64 if 'randint' in str(func) else torch.get_default_dtype())
                if 'rand' in str(func):
                    self.sizes.find(args[at], dtype, self.places.here())
                if self.sizes.wants(args[at]):
                    return tuple(args[:at]) + (self.sizes.shape(args[at]),) + tuple(args[at + 1:])
        return args

    def _shapes(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func in kernels.MASKED:
            args = self._with_indices(args)
        if func in kernels.COUNTED:
            return self._with_count(func, args, kwargs)
        if func is aten.constant_pad_nd.default and self.sizes.env is not None:
            return kernels.padded(args[0], args[1], self.fake)
        try:
            with self.fake:
                return func(*args, **kwargs)
        except UnsupportedOperatorException as e:
            raise CaptureError(no_rule(func, self.places.here())) from e
        except NotImplementedError as e:
            if getattr(func, 'namespace', 'aten') not in ('aten', 'prims', 'prim'):
                raise CaptureError(no_rule(func, self.places.here())) from e
            raise

    def _told(self, func: Any, args: Any, out: Any) -> None:
        """Births go to the ledger with what they are for."""
        if self.engine and func in kernels.IN_PLACE_ON_CUDA and kernels.called_by_engine() and self._may_be_in_place(func, args, out):
            return
        stack = [out]
        while stack:
            o = stack.pop()
            if isinstance(o, torch.Tensor):
                if o.device.type == DEVICE:
                    storage = o.untyped_storage()
                    if storage._cdata not in self.ledger.live:
                        self._born(func, args, storage)
            elif isinstance(o, (tuple, list)):
                stack.extend(reversed(o))

    def _born(self, func: Any, args: Any, storage: Any) -> None:
        ledger = self.ledger
        outside = not self.scopes.inside and not self.engine and not self.in_optimizer
        host = func is aten._to_copy.default and not isinstance(args[0], FakeTensor)
        source = -1
        if outside and (host or self._is_factory(func)):
            category = 'input'
        else:
            if outside and ledger.phase == 'backward' and self.on_temporary is not None:
                self.on_temporary()
            category = 'optimizer temporary' if self.in_optimizer else CATEGORY_OF_PHASE[ledger.phase]
            if outside and args and isinstance(args[0], FakeTensor):
                birth = ledger.live.get(args[0].untyped_storage()._cdata)
                source = birth.number if birth is not None else -1
        ledger.born(storage, category, self.op, self.scopes.here(bool(self.engine)), source)

    def _may_be_in_place(self, func: Any, args: Any, out: Any) -> bool:
        ledger = self.ledger
        if not isinstance(out, torch.Tensor) or out.device.type != DEVICE or not isinstance(args[0], torch.Tensor):
            return False
        ledger.settle()
        a, storage = args[0], out.untyped_storage()
        source = ledger.live.get(a.untyped_storage()._cdata)
        if source is None or storage._cdata in ledger.live or out.dtype != a.dtype or out.dim() != a.dim():
            return False
        same = self.sizes.same
        if not all(same(x, y) for x, y in zip(out.shape, a.shape)) or not same(self.sizes.amount(storage.nbytes()), source.bytes):
            return False
        ledger.expect_in_place(a.untyped_storage()._cdata, storage, CATEGORY_OF_PHASE[ledger.phase], self.op, self.scopes.here(True))
        return True

    # ---- sizes that the data decide
    def _with_indices(self, args: Any) -> Any:
        indices = args[1]
        if not any(isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices):
            return args
        out: list[Any] = []
        for i in indices:
            if isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8):
                op, self.op = self.op, 'aten.nonzero'
                found = self._with_count(aten.nonzero.default, (i,), {})
                self._told(aten.nonzero.default, (i,), found)
                self.op = op
                with self.fake:
                    out += list(found.unbind(1))
            else:
                out.append(i)
        return (args[0], out) + tuple(args[2:])

    def _with_count(self, func: Any, args: Any, kwargs: Any) -> Any:
        x = args[1] if func is aten.masked_select.default else args[0]
        known = self.shadows.of(x) if isinstance(x, FakeTensor) else x
        real = None
        if known is not None and (func is not aten.masked_select.default):
            with contextlib.suppress(Exception), torch.utils._python_dispatch._disable_current_modes():
                real = func(known, *args[1:], **{k: v for k, v in kwargs.items() if k != 'device'})
        n = self._count(func, x, known, real)
        with self.fake:
            out = _results(func, args, kwargs, n)
        if real is not None:
            for t, v in zip(out if isinstance(out, tuple) else (out,), real if isinstance(real, tuple) else (real,)):
                self.shadows.set(t, v)
        return out

    def _count(self, func: Any, x: Any, known: Any, real: Any) -> Any:
        key = (x.untyped_storage()._cdata, x._version)
        remembered = self._counted.get(key)
        if remembered is not None and remembered[0]() is x.untyped_storage():
            return remembered[1]
        most: Any = 1
        for s in x.shape:
            most = most * s
        if real is not None:
            first = real[0] if isinstance(real, tuple) else real
            value = int(first.shape[0])
        elif known is not None:
            value = int(known.count_nonzero())
        else:
            value = self.sizes.hint(most) // _HALF
        n = self.sizes.count(value, self.sizes.amount(most), known is not None)
        storage = x.untyped_storage()
        self._counted[key] = (weakref.ref(storage), n)
        return n

    # ---- questions
    @staticmethod
    def _is_factory(func: Any) -> bool:
        name = func.__name__.split('.')[0] if hasattr(func, '__name__') else ''
        return name in kernels.FACTORIES

    @staticmethod
    def _is_large_weight(shape: Any, kwargs: Any) -> bool:
        n = 1
        for s in shape:
            n *= int(s)
        dtype = kwargs.get('dtype') or torch.get_default_dtype()
        if n < LARGE or not dtype.is_floating_point or (kwargs.get('device') is not None and torch.device(kwargs['device']).type != 'cpu'):
            return False
        frame: Any = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_name == '__init__' and isinstance(frame.f_locals.get('self'), torch.nn.Module):
                return True
            frame = frame.f_back
        return False


def _results(func: Any, args: Any, kwargs: Any, n: Any) -> Any:
    x = args[0]
    if func is aten.nonzero.default:
        return torch.empty_strided((n, x.dim()), (1, n), dtype=torch.long, device=x.device)
    if func is aten.masked_select.default:
        return torch.empty(n, dtype=x.dtype, device=x.device)
    whole = torch.empty(x.shape, dtype=torch.long, device=x.device)
    if func is aten.unique_dim.default:
        dim = args[1]
        shape = [n if i == dim % x.dim() else s for i, s in enumerate(x.shape)]
        return (torch.empty(shape, dtype=x.dtype, device=x.device), torch.empty(x.shape[dim], dtype=torch.long, device=x.device),
                torch.empty(n, dtype=torch.long, device=x.device))
    return torch.empty(n, dtype=x.dtype, device=x.device), whole, torch.empty(n, dtype=torch.long, device=x.device)


def no_rule(func: Any, where: str) -> str:
    name = str(func).removesuffix('.default').replace('.', '::', 1)
    return (f"{where}: {name} has no size rule. Write one and give it with --rules my_rules.py, for example:\n"
            f"    import torch\n\n"
            f"    def rule(x, *args, **kwargs):       # what the kernel allocates, as empty tensors\n"
            f"        return torch.empty_like(x)\n\n"
            f"    size_rule('{name}', rule)")


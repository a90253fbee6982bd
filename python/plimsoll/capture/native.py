"""A CUDA device that computes nothing, for a build of PyTorch that has none, without a compiler.

PyTorch's C++ asks two objects about a device: the guard (which device is current) and the hooks (is there an accelerator).
A CPU-only build has neither for CUDA and stops at the first node of autograd. Both are exported by address, so ctypes can
put others in their place for the time of a capture. With a CUDA device that works nothing is touched.
"""
from __future__ import annotations

import ctypes
import mmap
import platform
from collections.abc import Callable
from typing import Any

import torch

from .errors import CaptureError

CUDA, META, LAZY = 1, 14, 17  # c10/core/DeviceType.h
_TYPES, _SLOTS = 20, 64
_keep: list[Any] = []  # what C++ points to must never be freed

_X86 = {'cuda': b'\xb8\x01\x00\x00\x00\xc3',              # mov eax, 1; ret
        'stream': b'\xb8\x01\x00\x00\x00\x31\xd2\xc3',    # mov eax, 1; xor edx, edx; ret
        'nothing': b'\x31\xc0\xc3'}                       # xor eax, eax; ret
_ARM = {'cuda': b'\x20\x00\x80\x52\xc0\x03\x5f\xd6', 'stream': b'\x20\x00\x80\xd2\x01\x00\x80\xd2\xc0\x03\x5f\xd6',
        'nothing': b'\x00\x00\x80\x52\xc0\x03\x5f\xd6'}


def _library(name: str) -> ctypes.CDLL:
    with open('/proc/self/maps') as maps:
        for line in maps:
            path = line.rsplit(' ', 1)[-1].strip()
            if path.rsplit('/', 1)[-1].startswith(f'{name}.so'):
                return ctypes.CDLL(path)
    raise CaptureError(f'{name}.so of torch {torch.__version__} is not loaded: capture needs Linux and an ordinary build of PyTorch')


def _words(address: int, count: int) -> Any:
    return (ctypes.c_void_p * count).from_address(address)


def _code(text: bytes) -> int:
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(text)
    _keep.append(page)
    return ctypes.addressof(ctypes.c_char.from_buffer(page))


def _guard(c10: ctypes.CDLL) -> Callable[[], None]:
    """PyTorch's own guard that does nothing, where it has one (2.9 and later); else Meta's with other answers. Returns what puts the old one back."""
    registry = (ctypes.c_void_p * _TYPES).in_dll(c10, '_ZN3c104impl26device_guard_impl_registryE')
    if hasattr(torch._C, '_ensureCUDADeviceGuardSet'):
        lent = not registry[CUDA]
        if lent:
            registry[CUDA] = registry[LAZY]  # counts 0 devices, so the next call replaces it
        before = registry[CUDA]
        torch._C._ensureCUDADeviceGuardSet()
        if registry[CUDA] != before:
            return lambda: None
        if lent:
            registry[CUDA] = None
    own = registry[CUDA]
    stubs = {name: _code(text) for name, text in (_X86 if platform.machine() == 'x86_64' else _ARM).items()}
    table = (ctypes.c_void_p * 40)(*_words((_words(registry[META] or 0, 1)[0] or 0) - 16, 40))
    # type, exchangeDevice, getDevice, setDevice, uncheckedSetDevice, getStream, getDefaultStream (DeviceGuardImplInterface.h)
    for slot, name in enumerate(('cuda', 'cuda', 'cuda', 'nothing', 'nothing', 'stream', 'stream')):
        table[2 + slot] = stubs[name]
    guard = (ctypes.c_void_p * 16)()
    guard[0] = ctypes.addressof(table) + 16
    _keep.extend((table, guard))
    registry[CUDA] = ctypes.addressof(guard)

    def restore() -> None:
        registry[CUDA] = own
    return restore


def _tiny_backward_runs() -> str:
    """Empty when a backward on a device without values runs; else why not."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    try:
        with FakeTensorMode():
            a = torch.empty(2, 2, device='cuda:0', requires_grad=True)
            (a * a).sum().backward()  # type: ignore[no-untyped-call]
            return '' if a.grad is not None else 'no gradient'
    except (RuntimeError, AssertionError) as e:
        return str(e)[:200]


def _is_accelerator() -> bool:
    ask = getattr(torch._C, '_accelerator_getAccelerator', None)
    if ask is None:
        return True
    try:
        found = ask()
    except RuntimeError:
        return False
    return found is not None and torch.device(found).type == 'cuda'


def _hooks(cpu: ctypes.CDLL) -> Callable[[], None]:
    """Says yes in those questions of the hooks that decide: the slots are found by trying, as they differ between versions."""
    get = cpu._ZN2at6detail12getCUDAHooksEv
    get.restype = ctypes.c_void_p
    pointer = ctypes.c_void_p.from_address(get())
    own = pointer.value or 0
    table = (ctypes.c_void_p * (_SLOTS + 2))(*_words(own - 16, _SLOTS + 2))
    kind = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
    yes = kind(lambda self: True)
    _keep.extend((table, yes))
    address = ctypes.cast(yes, ctypes.c_void_p).value
    pointer.value = ctypes.addressof(table) + 16

    def restore() -> None:
        pointer.value = own

    for works in (_is_accelerator, lambda: not _tiny_backward_runs()):
        if works():
            continue
        for slot in range(2, _SLOTS):
            if table[slot + 2] == address:
                continue
            old = table[slot + 2]
            table[slot + 2] = address
            if works():
                break
            table[slot + 2] = old
        else:
            restore()
            raise CaptureError(f'torch {torch.__version__} does not let CUDA be imitated: {_tiny_backward_runs() or "no slot of its hooks decides"}')
    return restore


def has_device() -> bool:
    """To be asked before torch.cuda is patched."""
    return bool(torch._C._has_cuda and torch.cuda.is_available())


def install() -> Callable[[], None]:
    """To be called with torch.cuda already patched. Returns what puts back what was there."""
    if platform.system() != 'Linux' or platform.machine() not in ('x86_64', 'aarch64'):
        raise CaptureError(f'capture without a GPU needs Linux on x86_64 or aarch64, not {platform.system()} on {platform.machine()}')
    guard = _guard(_library('libc10'))
    hooks = _hooks(_library('libtorch_cpu'))

    def restore() -> None:
        hooks()
        guard()
    return restore

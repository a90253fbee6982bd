"""torch.cuda as it looks on a machine with the named card: one device, no kernels, memory counters from the events."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .cards import Card
from .ledger import Ledger
from .notes import Notes
from .patches import Patches
from .places import Places

DEVICE = 'cuda'
_H100_MULTIPROCESSORS = 132  # NVIDIA H100 SXM datasheet; said as an assumption when a script reads it


class Event:
    """Everything is already done: the host's order is the only one."""
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def record(self, stream: Any = None) -> Event: return self
    def wait(self, stream: Any = None) -> None: ...
    def query(self) -> bool: return True
    def synchronize(self) -> None: ...
    def elapsed_time(self, other: Any) -> float: return 1.0


class Stream:
    _made = 0
    _stack: list[Stream] = []

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.stream_id = self.cuda_stream = Stream._made
        Stream._made += 1
        self.device, self.priority = torch.device(DEVICE, 0), priority

    def wait_stream(self, stream: Any) -> None: ...
    def wait_event(self, event: Any) -> None: ...
    def record_event(self, event: Any = None) -> Any: return event or Event()
    def is_capturing(self) -> bool: return False
    def query(self) -> bool: return True
    def synchronize(self) -> None: ...

    def __enter__(self) -> Stream:
        Stream._stack.append(self)
        return self

    def __exit__(self, *args: Any) -> None:
        Stream._stack.pop()


class CurrentDevice:
    """torch.cuda.device(0) as a context."""
    def __init__(self, *args: Any) -> None: ...
    def __enter__(self) -> CurrentDevice: return self
    def __exit__(self, *args: Any) -> None: ...


class Properties:
    """What the catalogue knows of a card; anything else is assumed, with a note."""

    def __init__(self, card: Card, notes: Notes, places: Places) -> None:
        self.name, self.total_memory, (self.major, self.minor) = card.name, card.memory, card.capability
        self._notes, self._places = notes, places

    _ASSUMED = {'multi_processor_count': _H100_MULTIPROCESSORS, 'warp_size': 32, 'regs_per_multiprocessor': 65536, 'max_threads_per_multi_processor': 2048,
                'L2_cache_size': 50 << 20, 'shared_memory_per_block_optin': 232448, 'shared_memory_per_multiprocessor': 233472, 'gcnArchName': '',
                'is_integrated': 0, 'is_multi_gpu_board': 0, 'uuid': '', 'pci_bus_id': 0, 'pci_device_id': 0, 'pci_domain_id': 0}

    def __getattr__(self, name: str) -> Any:
        if name not in Properties._ASSUMED:
            raise AttributeError(name)
        self._notes.note(f"the card's {name} is assumed to be {Properties._ASSUMED[name]!r}", self._places.here())
        return Properties._ASSUMED[name]


@contextlib.contextmanager
def use_stream(stream: Stream | None) -> Iterator[None]:
    if stream is None:
        yield
    else:
        with stream:
            yield


class Device:
    """Puts itself in the place of torch.cuda; `patches.restore()` takes it away."""

    def __init__(self, card: Card, ledger: Ledger, notes: Notes, places: Places) -> None:
        self._card, self._ledger, self._notes, self._places = card, ledger, notes, places

    def install(self, patches: Patches) -> None:
        Stream._made = 0
        Stream._stack[:] = [Stream()]
        self._constants(patches)
        self._counters(patches)
        self._streams(patches)
        self._random(patches)

    def _constants(self, patches: Patches) -> None:
        card = self._card
        properties = Properties(card, self._notes, self._places)
        bf16 = card.capability >= (8, 0)
        answers: dict[str, Any] = dict(
            is_available=True, is_initialized=True, is_bf16_supported=bf16, is_tf32_supported=bf16, device_count=1, current_device=0, set_device=None,
            synchronize=None, _lazy_init=None, init=None, is_current_stream_capturing=False, get_device_capability=card.capability,
            get_device_name=card.name, get_device_properties=properties, empty_cache=None, ipc_collect=None, _is_compiled=True,
            _device_count_nvml=1, utilization=0, temperature=0, power_draw=0, memory_summary='', can_device_access_peer=False,
            get_arch_list=[f'sm_{card.capability[0]}{card.capability[1]}'], is_in_bad_fork=False, _is_in_bad_fork=False)
        for name, value in answers.items():
            patches.set_if_there(torch.cuda, name, _answer(value))
        patches.set(torch.cuda, 'device', CurrentDevice)
        patches.set_if_there(torch.backends.cuda, 'is_built', _answer(True))
        for name, value in dict(is_available=True, device_count=1, current_device_index=0, synchronize=None,
                                current_accelerator=torch.device(DEVICE)).items():
            if hasattr(torch, 'accelerator'):
                patches.set_if_there(torch.accelerator, name, _answer(value))

    def _counters(self, patches: Patches) -> None:
        ledger, card = self._ledger, self._card

        def reset(*args: Any) -> None:
            ledger.peak = ledger.current

        def stats(*args: Any, **kwargs: Any) -> dict[str, int]:
            kinds = {'current': ledger.current, 'peak': ledger.peak, 'allocated': 0, 'freed': 0}
            return {**{f'{what}_bytes.{pool}.{kind}': n for what in ('allocated', 'reserved', 'active', 'requested', 'inactive_split')
                       for pool in ('all', 'small_pool', 'large_pool') for kind, n in kinds.items()}, 'num_ooms': 0, 'num_alloc_retries': 0}
        for name in ('memory_allocated', 'memory_reserved', 'memory_cached'):
            patches.set_if_there(torch.cuda, name, lambda *a, **k: ledger.current)
        for name in ('max_memory_allocated', 'max_memory_reserved', 'max_memory_cached'):
            patches.set_if_there(torch.cuda, name, lambda *a, **k: ledger.peak)
        for name in ('reset_peak_memory_stats', 'reset_max_memory_allocated', 'reset_max_memory_cached'):
            patches.set_if_there(torch.cuda, name, reset)
        patches.set(torch.cuda, 'memory_stats', stats)
        patches.set(torch.cuda, 'mem_get_info', lambda *a, **k: (max(0, card.memory - ledger.current), card.memory))

    def _streams(self, patches: Patches) -> None:
        def current(*args: Any, **kwargs: Any) -> Stream:
            return Stream._stack[-1]
        for name, value in dict(Stream=Stream, Event=Event, stream=use_stream, current_stream=current, default_stream=_answer(Stream._stack[0])).items():
            patches.set(torch.cuda, name, value)
        if hasattr(torch, 'accelerator'):
            patches.set_if_there(torch.accelerator, 'current_stream', current)
        patches.set_if_there(torch, 'Stream', Stream)
        patches.set_if_there(torch, 'Event', Event)

    def _random(self, patches: Patches) -> None:
        for name in ('set_rng_state', 'set_rng_state_all', 'manual_seed', 'manual_seed_all', 'seed', 'seed_all'):
            patches.set(torch.cuda, name, _answer(None))
        patches.set(torch.cuda, 'get_rng_state', lambda *a, **k: torch.zeros(16, dtype=torch.uint8))
        patches.set(torch.cuda, 'get_rng_state_all', lambda *a, **k: [torch.zeros(16, dtype=torch.uint8)])
        patches.set(torch.cuda, 'initial_seed', _answer(0))
        generator = torch.Generator

        class Generator(generator):  # type: ignore[misc, valid-type]
            """A generator of the device draws nothing: one of the host stands for it."""
            def __new__(cls, device: Any = 'cpu') -> Any:
                new: Any = generator.__new__
                return new(cls, 'cpu' if torch.device(device).type == DEVICE else device)
        patches.set(torch, 'Generator', Generator)


def _answer(value: Any) -> Any:
    return lambda *args, **kwargs: value

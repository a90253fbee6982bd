"""What scripts use around a training step and a capture leaves out: files, loader workers, compilers. Each is reported once."""
from __future__ import annotations

import sys
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_iter

from .boundary import to_device
from .device import DEVICE
from .imports import ImportHooks
from .notes import Notes
from .patches import Patches
from .places import Places


class Libraries:
    def __init__(self, notes: Notes, places: Places) -> None:
        self._notes, self._places = notes, places

    def install(self, patches: Patches) -> None:
        self._files(patches)
        self._loader(patches)
        self._compiler(patches)
        hooks = ImportHooks()
        hooks.install()
        patches.call_on_restore(hooks.remove)
        hooks.when('transformers.utils.import_utils', lambda m: self._tracing(patches, m))
        hooks.when('transformers.trainer', lambda m: self._trainer(patches, m.Trainer))
        hooks.when('transformers.modeling_utils', lambda m: self._skip(patches, m.PreTrainedModel, 'save_pretrained', 'save_pretrained'))
        hooks.when('safetensors.torch', lambda m: self._safetensors(patches, m))

    def _skip(self, patches: Patches, owner: Any, name: str, what: str) -> None:
        if hasattr(owner, name):
            patches.set(owner, name, lambda *a, **k: self._notes.skip(what, self._places.here()))

    def _trainer(self, patches: Patches, trainer: Any) -> None:
        self._skip(patches, trainer, '_save_checkpoint', 'a Trainer checkpoint')
        patches.set_if_there(trainer, 'floating_point_ops', lambda *args: 0)  # for its log alone, and it would fix the sizes

    def _files(self, patches: Patches) -> None:
        save, load = torch.save, torch.load

        def new_save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            if any(isinstance(t, FakeTensor) for t in tree_iter(obj)):
                return self._notes.skip('torch.save', self._places.here())
            return save(obj, f, *args, **kwargs)

        def new_load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
            """Through the host: the file's storages would be made on the device below the dispatcher."""
            if map_location is None or not isinstance(map_location, (str, torch.device)):
                return load(f, 'cpu', *args, **kwargs)
            wanted = torch.device(map_location)
            loaded = load(f, 'cpu' if wanted.type == DEVICE else map_location, *args, **kwargs)
            return to_device(loaded) if wanted.type == DEVICE else loaded
        patches.set(torch, 'save', new_save)
        patches.set(torch, 'load', new_load)

    def _safetensors(self, patches: Patches, module: Any) -> None:
        for name in ('save_file', 'save_model', 'save'):
            self._skip(patches, module, name, f'safetensors.{name}')

    def _loader(self, patches: Patches) -> None:
        from torch.utils.data import DataLoader
        init = DataLoader.__init__

        def new_init(loader: Any, dataset: Any, batch_size: Any = 1, shuffle: Any = None, sampler: Any = None, batch_sampler: Any = None,
                     num_workers: int = 0, *args: Any, **kwargs: Any) -> None:
            if num_workers:
                self._notes.note(f'DataLoader(num_workers={num_workers}) reads its data in this process', self._places.here())
            for name in ('prefetch_factor', 'persistent_workers', 'multiprocessing_context', 'timeout'):
                kwargs.pop(name, None)
            kwargs['pin_memory'] = False
            if len(args) > 1:  # collate_fn, pin_memory, ...
                args = (args[0], False) + args[2:]
                kwargs.pop('pin_memory')
            init(loader, dataset, batch_size, shuffle, sampler, batch_sampler, 0, *args, **kwargs)
        patches.set(DataLoader, '__init__', new_init)

    def _compiler(self, patches: Patches) -> None:
        def note(what: str) -> None:
            self._notes.note(f'{what} is left out: the step is captured as it runs eagerly', self._places.here())

        def compile(model: Any = None, **kwargs: Any) -> Any:
            note('torch.compile')
            return model if model is not None else lambda function: function
        patches.set(torch, 'compile', compile)
        patches.set(torch.jit._state._enabled, 'enabled', False)  # functions to be scripted run as Python
        patches.set(torch.nn.Module, 'compile', lambda module, *args, **kwargs: note('Module.compile'))

    def _tracing(self, patches: Patches, module: Any) -> None:
        """transformers takes tensors without values for a trace that will run elsewhere, and builds masks that a real run does not."""
        for m in list(sys.modules.values()):
            if m is module or getattr(m, '__name__', '').startswith('transformers.'):
                if 'is_tracing' in vars(m):
                    patches.set(m, 'is_tracing', lambda *args, **kwargs: False)

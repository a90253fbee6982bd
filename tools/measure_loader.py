#!/usr/bin/env python3
"""Measures what a PyTorch DataLoader holds in host memory: batches in flight, /dev/shm, what a worker has for itself.

Needs PyTorch (a CPU build is enough) and Linux. Prints one JSON object a line; docs/host-memory.md quotes it.

    python3 measure_loader.py [--only build,outstanding,pages,worker,collected,objects,cache,load,moved]
    python3 measure_loader.py --only pinned          compiles pinned_host.cpp: PyTorch's pinned-memory allocator over malloc
    unshare -m sh -c 'mount -t tmpfs -o size=24m tmpfs /dev/shm && python3 measure_loader.py --only limit'    as root; 2 workers, or LIMIT=1,3
    MEASURE_IMPORT=transformers.trainer,torchvision python3 measure_loader.py --only worker,collected
"""

import argparse
import ctypes
import gc
import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing import forkserver

import numpy

TORCH = os.path.dirname(importlib.util.find_spec("torch").origin)
if os.environ.get("MEASURE_ACCELERATOR"):  # must be there before torch looks for one
    ACCELERATOR = ctypes.CDLL(os.environ["MEASURE_ACCELERATOR"], mode=ctypes.RTLD_GLOBAL)

import torch
from torch.utils.data import DataLoader, Dataset

MIB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))

for module in filter(None, os.environ.get("MEASURE_IMPORT", "").split(",")):  # at the top, so that fresh workers import it too
    importlib.import_module(module)


def smaps(pid="self"):
    """Rss, Pss and the part no other process shares (Private_*), in bytes."""
    out = {"Rss": 0, "Pss": 0, "Private": 0}
    with open(f"/proc/{pid}/smaps_rollup") as f:
        for line in f:
            name = line.split(":")[0]
            if name in ("Rss", "Pss"):
                out[name] = int(line.split()[1]) * 1024
            elif name.startswith("Private_") and name != "Private_Hugetlb":
                out["Private"] += int(line.split()[1]) * 1024
    return out


def anonymous(pid):
    with open(f"/proc/{pid}/status") as f:
        for line in f:
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
    return 0


def shm_used():
    s = os.statvfs("/dev/shm")
    return (s.f_blocks - s.f_bfree) * s.f_frsize


def mib(n):
    return round(n / MIB, 1)


def say(what, **values):
    print(json.dumps({"what": what, **values}), flush=True)


class Counting(Dataset):
    """Items of one size; counts how many were made, in all workers together."""

    def __init__(self, items, item_bytes, counter):
        self.items, self.item_bytes, self.counter = items, item_bytes, counter

    def __len__(self):
        return self.items

    def __getitem__(self, i):
        with self.counter.get_lock():
            self.counter.value += 1
        return torch.full((self.item_bytes,), i % 256, dtype=torch.uint8)


class Holding(Dataset):
    """Holds an object; an item touches one entry of it."""

    def __init__(self, entries, items):
        self.entries, self.items = entries, items

    def __len__(self):
        return self.items

    def __getitem__(self, i):
        entry = self.entries[i]
        return torch.tensor([len(entry) if isinstance(entry, str) else float(entry.ravel()[0])])


def settled(read, seconds=0.6):
    """The value once it has not changed for a while."""
    last, since = read(), time.time()
    while time.time() - since < seconds:
        time.sleep(0.02)
        now = read()
        if now != last:
            last, since = now, time.time()
    return last


def outstanding():
    """Batches made but not yet returned, after k were returned, and the bytes they hold in /dev/shm."""
    batch, item = 4, MIB
    for workers, prefetch in [(1, 1), (1, 2), (2, 2), (2, 3), (3, 4)]:
        for taken in (1, 3):
            counter = multiprocessing.get_context("fork").Value("l", 0)
            before = shm_used()
            loader = DataLoader(Counting(400, item, counter), batch_size=batch, num_workers=workers, prefetch_factor=prefetch,
                                multiprocessing_context="fork")
            it = iter(loader)
            for _ in range(taken):
                held = next(it)
            made = settled(lambda: counter.value) // batch
            say("outstanding", workers=workers, prefetch_factor=prefetch, returned=taken, made=made, ahead=made - taken,
                shm_batches=round((shm_used() - before) / (batch * item), 2))
            del it, held
            gc.collect()


class Odd(Dataset):
    """Items of several tensors whose sizes are no round numbers."""

    def __init__(self, counter):
        self.counter = counter

    def __len__(self):
        return 400

    def __getitem__(self, i):
        with self.counter.get_lock():
            self.counter.value += 1
        return {"ids": torch.zeros(1000, dtype=torch.long), "pixels": torch.zeros(3, 37, 41), "label": torch.tensor(i)}


def pages():
    """/dev/shm to the page: every tensor of a batch takes whole pages, the queues take one a semaphore."""
    batch = 5
    of_batch = sum(-(-n * batch // 4096) for n in (8000, 3 * 37 * 41 * 4, 8))
    for workers in (1, 2, 3, 4):
        counter = multiprocessing.get_context("fork").Value("l", 0)
        before = shm_used()
        it = iter(DataLoader(Odd(counter), batch_size=batch, num_workers=workers, prefetch_factor=2, multiprocessing_context="fork"))
        held = next(it)
        settled(lambda: counter.value)
        used = (shm_used() - before) // 4096
        say("pages", workers=workers, prefetch_factor=2, used=used, of_batches=(2 * workers + 1) * of_batch,
            of_semaphores=used - (2 * workers + 1) * of_batch)
        del it, held
        gc.collect()


def worker():
    """What one idle worker holds for itself under each start method."""
    say("process", imported="torch " + os.environ.get("MEASURE_IMPORT", ""), **{k: mib(v) for k, v in smaps().items()})
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        loader = DataLoader(Holding(numpy.zeros((1000, 1)), 1000), batch_size=10, num_workers=2, multiprocessing_context=context)
        it = iter(loader)
        for _ in range(60):
            next(it)
        time.sleep(0.5)
        seen = [smaps(w.pid) for w in it._workers]
        say("worker", start_method=method, private_mib=[mib(s["Private"]) for s in seen], pss_mib=[mib(s["Pss"]) for s in seen],
            rss_mib=[mib(s["Rss"]) for s in seen])
        del it
    server = smaps(forkserver._forkserver._forkserver_pid)
    say("fork server", **{k: mib(v) for k, v in server.items()})


class Collecting(Dataset):
    """Runs the garbage collector, as any long run does sooner or later."""

    def __len__(self):
        return 100

    def __getitem__(self, i):
        gc.collect()
        return torch.tensor([i])


def collected():
    """A worker after a full garbage collection, which writes to every object."""
    for method in ("fork", "forkserver"):
        it = iter(DataLoader(Collecting(), batch_size=10, num_workers=2, multiprocessing_context=multiprocessing.get_context(method)))
        for _ in range(8):
            next(it)
        time.sleep(0.5)
        say("collected", start_method=method, private_mib=[mib(smaps(w.pid)["Private"]) for w in it._workers])
        del it


def private_growth(entries, n, method):
    """Private bytes of two workers that each read every entry they are given over one epoch, beyond a worker with nothing."""
    def one(dataset):
        loader = DataLoader(dataset, batch_size=500, num_workers=2, multiprocessing_context=multiprocessing.get_context(method),
                            persistent_workers=True, shuffle=True)
        for _ in loader:
            pass
        time.sleep(0.3)
        out = [smaps(w.pid)["Private"] for w in loader._iterator._workers]
        del loader
        return out
    base = one(Holding(numpy.zeros((1000, 1)), 1000))
    full = one(Holding(entries, n))
    return [mib(f - b) for f, b in zip(full, base)]


def objects():
    """A dataset that is a list of Python strings, and the same bytes as one array."""
    n, size = 400_000, 200
    before = smaps()["Rss"]
    strings = [f"{i:0{size}d}" for i in range(n)]
    held = smaps()["Rss"] - before
    for method in ("fork", "forkserver"):
        say("objects", start_method=method, dataset="list of strings", dataset_mib=mib(held),
            worker_private_mib=private_growth(strings, n, method))
    del strings
    gc.collect()
    array = numpy.ones((n, size), dtype=numpy.uint8)
    for method in ("fork", "forkserver"):
        say("objects", start_method=method, dataset="one numpy array", dataset_mib=mib(array.nbytes),
            worker_private_mib=private_growth(array, n, method))


def cache():
    """A cache of tensors made before the workers start."""
    for method in ("fork", "spawn", "forkserver"):
        tensors = [torch.ones(MIB, dtype=torch.uint8) for _ in range(128)]
        before = shm_used()
        loader = DataLoader(Holding(tensors, 128), batch_size=8, num_workers=2, persistent_workers=True,
                            multiprocessing_context=multiprocessing.get_context(method))
        for _ in loader:
            pass
        time.sleep(0.3)
        say("cache", start_method=method, cache_mib=128, shm_mib=mib(shm_used() - before),
            worker_private_mib=[mib(smaps(w.pid)["Private"]) for w in loader._iterator._workers])
        del loader, tensors
        gc.collect()


def peak_of(pid, action):
    """The most anonymous memory of a process over what it had at least while `action` runs, in MiB."""
    seen, stop = [anonymous(pid)], False

    def watch():
        while not stop:
            seen.append(anonymous(pid))
            time.sleep(0.001)

    thread = threading.Thread(target=watch)
    thread.start()
    action()
    stop = True
    thread.join()
    return mib(max(seen) - min(seen))


def build():
    """The most a worker holds while it builds a batch: the items, beside the batch in /dev/shm. Items up to 32 MiB come from malloc's
    heap, which does not give all of them back before the next batch."""
    batch = 16
    for item in (8 * MIB, 40 * MIB):
        counter = multiprocessing.get_context("fork").Value("l", 0)
        it = iter(DataLoader(Counting(batch * 31, item, counter), batch_size=batch, num_workers=1, prefetch_factor=1,
                             multiprocessing_context="fork"))
        peak = peak_of(it._workers[0].pid, lambda: [next(it) is None or time.sleep(0.15) for _ in range(15)])
        say("build", batch=batch, item_mib=mib(item), items_mib=mib(batch * item), worker_peak_over_idle_mib=peak)
        del it
        gc.collect()


class Plain(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, i):
        return torch.full((MIB,), 1, dtype=torch.uint8)


def limit():
    """Does an epoch of 15 batches of 4 MiB run in a /dev/shm of this size?"""
    workers, prefetch = map(int, os.environ.get("LIMIT", "2,2").split(","))
    size = os.statvfs("/dev/shm")
    row = dict(workers=workers, prefetch_factor=prefetch, shm_bytes=size.f_blocks * size.f_frsize)
    try:
        for _ in DataLoader(Plain(), batch_size=4, num_workers=workers, prefetch_factor=prefetch, multiprocessing_context="fork"):
            time.sleep(0.1)
        say("limit", **row, ran=True)
    except RuntimeError as e:
        say("limit", **row, ran=False, error=str(e).strip().splitlines()[-1])


def moved():
    """Module.to(): new storages one by one, the old ones freed behind them. A clone stands in for the copy to a device."""
    model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096, bias=False) for _ in range(8)])
    say("moved", model_mib=8 * 64, largest_tensor_mib=64, peak_over_before_mib=peak_of(os.getpid(), lambda: model._apply(torch.clone)))


def pinned():
    """Blocks of PyTorch's own pinned-memory allocator, alone and under a DataLoader whose consumer is slower than its workers."""
    with tempfile.TemporaryDirectory() as folder:
        library, lib = os.path.join(folder, "libpinned_host.so"), os.path.join(TORCH, "lib")
        subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-std=c++20", "-Wno-interference-size", "-I", os.path.join(TORCH, "include"),
                        os.path.join(HERE, "pinned_host.cpp"), "-o", library, "-L", lib, "-Wl,-rpath," + lib, "-lc10", "-ltorch_cpu"],
                       check=True)
        there = dict(os.environ, MEASURE_ACCELERATOR=library)
        for size in (1, 511, 512, 513, 5000, MIB, MIB + 1, 3 * MIB):
            subprocess.run([sys.executable, *WARNINGS, __file__, "--pinned-size", str(size)], check=True, env=there)
        for workers, prefetch in [(0, 0), (1, 1), (1, 2), (2, 2), (2, 3), (2, 4)]:
            subprocess.run([sys.executable, *WARNINGS, __file__, "--pinned-loader", f"{workers},{prefetch}"], check=True, env=there)


WARNINGS = ("-W", "ignore")


def accelerator():
    for name in ("pinned_held", "pinned_in_use", "pinned_blocks"):
        getattr(ACCELERATOR, name).restype = ctypes.c_long
    torch.accelerator.is_available = lambda: True
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.set_device_index = lambda _: None
    return ACCELERATOR


def pinned_size(size):
    lib = accelerator()
    tensor = torch.ones(int(size), dtype=torch.uint8).pin_memory()
    say("pinned size", requested=tensor.numel(), block=lib.pinned_held())


def pinned_loader(workers, prefetch):
    lib = accelerator()
    workers, prefetch, batch, item = int(workers), int(prefetch), 4, 3 * MIB // 4
    counter = multiprocessing.get_context("fork").Value("l", 0)
    before = shm_used()
    more = dict(num_workers=workers, prefetch_factor=prefetch, multiprocessing_context="fork") if workers else {}
    it = iter(DataLoader(Counting(400, item, counter), batch_size=batch, pin_memory=True, **more))
    for _ in range(6):
        held = next(it)
        time.sleep(0.1)
    settled(lambda: counter.value)
    say("pinned loader", workers=workers, prefetch_factor=prefetch, batch_mib=mib(batch * item), blocks=lib.pinned_blocks(),
        held_mib=mib(lib.pinned_held()), shm_batches=round((shm_used() - before) / (batch * item), 2))
    del it, held


def load():
    """torch.load of a file: copied, and mapped."""
    n = 256 * MIB
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.pt")
        torch.save({"a": torch.ones(n // 2, dtype=torch.uint8), "b": torch.ones(n // 2, dtype=torch.uint8)}, path)
        for mapped in (False, True):
            gc.collect()
            before = anonymous(os.getpid())
            state = torch.load(path, mmap=mapped)
            loaded = anonymous(os.getpid()) - before
            say("load", file_mib=mib(os.path.getsize(path)), mmap=mapped, anonymous_mib=mib(loaded))
            del state


EXPERIMENTS = {f.__name__: f for f in (build, outstanding, pages, worker, collected, objects, cache, load, moved, pinned, limit)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(e for e in EXPERIMENTS if e not in ("pinned", "limit")))
    parser.add_argument("--pinned-size", help=argparse.SUPPRESS)
    parser.add_argument("--pinned-loader", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.pinned_size:
        pinned_size(*options.pinned_size.split(","))
    elif options.pinned_loader:
        pinned_loader(*options.pinned_loader.split(","))
    else:
        wanted = options.only.split(",")
        unknown = [w for w in wanted if w not in EXPERIMENTS]
        if unknown:
            sys.exit(f"no experiment {', '.join(unknown)}; known: {', '.join(EXPERIMENTS)}")
        say("versions", python=sys.version.split()[0], torch=torch.__version__)
        for name in wanted:
            EXPERIMENTS[name]()

#!/usr/bin/env python3
"""A small PyTorch training run on the CPU to be watched, healthy or with a fault: what docs/watch.md shows was seen with it.

  python3 tools/watch_training.py --leak main > train.log & plimsoll watch $! train.log
"""
import argparse
import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Leak:
    """Keeps `size` bytes each time, or as many as make `rate` bytes a second."""

    def __init__(self, size, rate):
        self.size, self.rate, self.begin, self.total, self.kept = size, rate, None, 0, []

    def keep(self):
        self.begin = self.begin or time.time()
        size = int(self.rate * (time.time() - self.begin)) - self.total if self.rate else self.size
        self.total += size
        self.kept.append(b"x" * size)


class Samples(Dataset):
    """Random vectors. `seconds`: work of one item; `leak`: what a worker keeps; `cache`: how many items are kept, of 64 KiB each."""

    def __init__(self, count, width, seconds, leak, cache):
        self.count, self.width, self.seconds, self.leak, self.cache, self.cached = count, width, seconds, leak, cache, {}

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        end = time.process_time() + self.seconds
        while time.process_time() < end:
            pass
        if self.leak:
            self.leak.keep()
        if self.cache:
            self.cached[index % self.cache] = b"x" * (64 << 10)
        return torch.randn(self.width), index % 10


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=240)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--pause", type=float, default=0.05, help="seconds that a step takes beside its own work")
    p.add_argument("--item", type=float, default=0.0, help="seconds of work of one item")
    p.add_argument("--epoch", type=int, default=400, help="steps of an epoch")
    p.add_argument("--leak", choices=["none", "main", "worker", "shm"], default="none")
    p.add_argument("--rate", type=float, default=0, help="MiB a second that leak, in all; 0: 1 MiB a step, 64 KiB an item")
    p.add_argument("--collect", action="store_true", help="keep outputs until the epoch ends, as many do for a metric")
    p.add_argument("--cache", type=int, default=0, help="items that a worker keeps")
    p.add_argument("--lengths", type=int, default=1, help="batches are up to so many times as long, at random")
    p.add_argument("--evaluate", type=int, default=0, help="steps between evaluations with a batch eight times as large")
    p.add_argument("--spike", action="store_true", help="save a checkpoint now and then")
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(a.width, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    rate = a.rate * (1 << 20)
    worker_leak = Leak(64 << 10, rate / max(1, a.workers)) if a.leak == "worker" else None
    main_leak = Leak(1 << 20, rate)
    data = Samples(a.batch * a.epoch, a.width, a.item, worker_leak, a.cache)
    loader = DataLoader(data, batch_size=a.batch, num_workers=a.workers, persistent_workers=a.workers > 0)
    kept, outputs = [], []
    begin, epoch = time.time(), 0
    while True:
        for step, (x, y) in enumerate(loader):
            if a.lengths > 1:
                times = 1 + int(torch.randint(a.lengths, ()))
                x, y = x.repeat(times, 1), y.repeat(times)
            if a.evaluate and step % a.evaluate == a.evaluate - 1:
                with torch.no_grad():
                    model(x.repeat(8, 1)).sum().item()
                    time.sleep(2)
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if a.leak == "main":
                main_leak.keep()
            if a.leak == "shm":
                kept.append(x)
            if a.collect:
                outputs.append(torch.ones(32 << 10))
            if a.spike and step % 100 == 99:
                time.sleep(0.2 * len([t.clone() for t in model.state_dict().values()]) / 6)
            time.sleep(a.pause)
            if step % 10 == 9:
                print(f"epoch {epoch} step {step + 1}/{a.epoch} loss {loss.item():.3f}", flush=True)
            if time.time() - begin > a.seconds:
                return
        outputs.clear()
        epoch += 1


if __name__ == "__main__":
    sys.exit(main())

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


class Samples(Dataset):
    """Random vectors. `seconds`: work of one item; `keep`: bytes that a worker keeps of each."""

    def __init__(self, count, width, seconds, keep):
        self.count, self.width, self.seconds, self.keep, self.kept = count, width, seconds, keep, []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        end = time.process_time() + self.seconds
        while time.process_time() < end:
            pass
        if self.keep:
            self.kept.append(b"x" * self.keep)
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
    p.add_argument("--collect", action="store_true", help="keep outputs until the epoch ends, as many do for a metric")
    p.add_argument("--spike", action="store_true", help="save a checkpoint now and then")
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(a.width, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    data = Samples(a.batch * a.epoch, a.width, a.item, 64 << 10 if a.leak == "worker" else 0)
    loader = DataLoader(data, batch_size=a.batch, num_workers=a.workers, persistent_workers=a.workers > 0)
    kept, outputs = [], []
    begin, epoch = time.time(), 0
    while True:
        for step, (x, y) in enumerate(loader):
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if a.leak == "main":
                kept.append(torch.ones(256 << 10))  # 1 MiB a step
            if a.leak == "shm":
                kept.append(x)
            if a.collect:
                outputs.append(torch.ones(32 << 10))
            if a.spike and step % 200 == 199:
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

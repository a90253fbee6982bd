#!/usr/bin/env python3
"""A small real training run for tests of `plimsoll run`: it can run out of memory, alone or as one rank of several, saves checkpoints,
resumes, and writes down every sample it has trained on."""
import argparse
import json
import os
import resource
import signal
import sys
import time

import torch
from torch.distributed.elastic.multiprocessing.errors import record


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--micro_batch_size", type=int, default=8)
    p.add_argument("--accumulation", type=int, default=1)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--width", type=int, default=16)
    p.add_argument("--out", default="out")
    p.add_argument("--resume", default="")
    p.add_argument("--capacity", type=int, default=0, help="micro-batches above this run out of the memory of a device that is not here")
    p.add_argument("--oom_rank", type=int, default=0)
    p.add_argument("--killed", action="store_true", help="by signal 9, as the kernel does when the host's memory ends; no word is said")
    p.add_argument("--address_space", type=int, default=0, help="MiB above what is mapped at the start: real allocations fail")
    p.add_argument("--num_workers", type=int, default=0)
    p.add_argument("--most_workers", type=int, default=99, help="with more of them, one is killed")
    p.add_argument("--pause", type=float, default=0)
    return p.parse_args()


class Samples(torch.utils.data.Dataset):
    def __init__(self, a, count):
        self.a, self.count = a, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        info = torch.utils.data.get_worker_info()
        if info and self.a.num_workers > self.a.most_workers and info.id == 0:
            os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does
        return torch.full((self.a.width,), float(i % 7)), i


def mapped_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[0]) * resource.getpagesize()


def use_memory(a, rank):
    if a.capacity and a.micro_batch_size > a.capacity and rank == a.oom_rank:
        if a.killed:
            os.kill(os.getpid(), signal.SIGKILL)
        raise getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB of which 1.02 GiB is free. Process "
            "1234 has 6.77 GiB memory in use. Of the allocated memory 6.20 GiB is allocated by PyTorch, and 89.00 MiB is reserved by "
            "PyTorch but unallocated.")


@record
def main():
    a = arguments()
    mpi = os.environ.get("OMPI_COMM_WORLD_RANK", 0), os.environ.get("OMPI_COMM_WORLD_SIZE", 1)
    rank, world = int(os.environ.get("RANK", mpi[0])), int(os.environ.get("WORLD_SIZE", mpi[1]))
    if world > 1:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    if a.address_space:
        limit = mapped_bytes() + a.address_space * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    torch.manual_seed(0)
    model = torch.nn.Linear(a.width, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    first = 0
    if a.resume:
        state = torch.load(a.resume)
        model.load_state_dict(state["model"])
        first = state["step"]
    os.makedirs(a.out, exist_ok=True)
    share = a.micro_batch_size * a.accumulation
    data = Samples(a, a.steps * share * world)
    order = range(first * share * world + rank, len(data), world)
    loader = torch.utils.data.DataLoader(data, batch_size=a.micro_batch_size, sampler=list(order), num_workers=a.num_workers)
    seen, micro, step = [], 0, first
    for x, index in loader:
        use_memory(a, rank)
        if a.address_space:
            x = x.repeat(1, 2**20 // a.width * 4).view(-1, a.width)  # 16 MiB a sample
        loss = model(x).square().mean() / a.accumulation
        loss.backward()
        seen += index.tolist()
        micro += 1
        if micro % a.accumulation:
            continue
        if world > 1:
            for p in model.parameters():
                torch.distributed.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if world > 1:
            gathered = [None] * world
            torch.distributed.all_gather_object(gathered, seen)
            seen = sum(gathered, [])
        if rank == 0:  # the checkpoint first: what is written down is what it holds
            part = f"{a.out}/step-{step:04}.part"
            torch.save({"model": model.state_dict(), "step": step}, part)
            with open(f"{a.out}/seen-{step:04}.part", "w") as f:
                json.dump(sorted(seen), f)
            os.rename(f"{a.out}/seen-{step:04}.part", f"{a.out}/seen-{step:04}.json")
            os.rename(part, f"{a.out}/step-{step:04}.pt")
            print(f"step {step}/{a.steps} loss {loss.item():.4f} batch {a.micro_batch_size} x {a.accumulation}", flush=True)
        seen = []
        time.sleep(a.pause)
    if world > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())

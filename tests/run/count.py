#!/usr/bin/env python3
"""train.py without PyTorch, for tests that start hundreds of runs: steps, micro-batches, checkpoints, a worker process, an out-of-memory."""
import argparse
import json
import os
import subprocess
import sys
import time

p = argparse.ArgumentParser()
p.add_argument("--micro_batch_size", type=int, required=True)
p.add_argument("--accumulation", type=int, required=True)
p.add_argument("--steps", type=int, default=12)
p.add_argument("--capacity", type=int, default=3)
p.add_argument("--pause", type=float, default=0.02)
p.add_argument("--out", required=True)
p.add_argument("--resume", default="")
p.add_argument("--worker", type=int, default=1)
a = p.parse_args()

os.makedirs(a.out, exist_ok=True)
if a.worker:
    subprocess.Popen(["sleep", "1000"])  # nobody waits for it
share = a.micro_batch_size * a.accumulation
step = json.load(open(a.resume))["step"] if a.resume else 0


def write(name, value):
    with open(f"{a.out}/{name}.part", "w") as f:
        json.dump(value, f)
    os.rename(f"{a.out}/{name}.part", f"{a.out}/{name}")


while step < a.steps:
    seen = []
    for micro in range(a.accumulation):
        if a.micro_batch_size > a.capacity and step >= 1:
            print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", file=sys.stderr)
            sys.exit(1)
        begin = step * share + micro * a.micro_batch_size
        seen += range(begin, begin + a.micro_batch_size)
        time.sleep(a.pause)
    step += 1
    write(f"seen-{step:04}.json", seen)
    write(f"step-{step:04}.pt", {"step": step})
    print(f"step {step}/{a.steps}", flush=True)

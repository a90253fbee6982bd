#!/usr/bin/env python3
"""Healthy runs of many shapes, and leaks under the same shapes, judged by `plimsoll watch --replay`: docs/watch.md has the figures.

  python3 tools/watch_shapes.py ./build/plimsoll

Every run is made here, one look a second with its own noise. A healthy one must raise no warning; notes are counted apart. A leak must be
found, and the time from its beginning is printed.
"""
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

MIB, GIB = 1 << 20, 1 << 30


def saw(t, period, height):
    """Climbs and falls back, as activations do in a step."""
    return height * ((t % period) / period)


class Run:
    """A figure in bytes for each second: of the main process, the workers, a device, /dev/shm."""

    def __init__(self, seconds, main=2 * GIB, worker=300 * MIB, workers=4, device=None, shm=64 * MIB, steps=None, restart=None, crowd=None):
        self.seconds, self.main, self.worker, self.workers = seconds, main, worker, workers
        self.device, self.shm, self.steps, self.restart, self.crowd = device, shm, steps, restart, crowd


def paces(seed, crowd, seconds):
    """Work done until each second on a machine that is shared: now nearly a whole core for some seconds, now a `crowd`th of one."""
    noise, done, pace, left = random.Random(seed), [0.0], 0.9, 0.0
    for _ in range(seconds + 1):
        if left <= 0:
            pace, left = 0.9 / noise.uniform(1, crowd), noise.expovariate(1 / 6)
        left -= 1
        done.append(done[-1] + pace)
    return done


def at(value, t):
    return int(value(t) if callable(value) else value)


def looks(run, seed):
    noise = random.Random(seed)
    work = paces(seed, run.crowd or 1, run.seconds)
    for second in range(run.seconds):
        now = second + noise.random() * 0.2
        t = work[second] / 0.9 if run.crowd else now
        cpu = work[second + 1] - work[second]
        jitter = lambda v: int(v * (1 + noise.gauss(0, 0.0005)))
        anonymous = jitter(at(run.main, t))
        first = 100 + (int(t // run.restart) * 10 if run.restart else 0)
        rows = [dict(pid=10, role="main", rss_bytes=anonymous + 400 * MIB, anonymous_bytes=anonymous, pss_bytes=anonymous, cpu=cpu)]
        for w in range(run.workers):
            size = jitter(at(run.worker, t % run.restart if run.restart else t))
            rows.append(dict(pid=first + w, role="worker", rss_bytes=size + 200 * MIB, anonymous_bytes=size, pss_bytes=size, own_bytes=size, cpu=0.4))
        devices = []
        if run.device is not None:
            used = at(run.device, t)
            devices.append(dict(index=0, name="card", total_bytes=80 * GIB, used_bytes=used + GIB, ours_bytes=used, busy=0.9))
        host = dict(total_bytes=256 * GIB, available_bytes=200 * GIB - anonymous, shm_total_bytes=128 * GIB, shm_used_bytes=jitter(at(run.shm, t)),
                    pressure_some=0.0, pressure_full=0.0, cpus=16, idle_cpus=8.0)
        steps = None
        if run.steps:
            rate, total = run.steps
            seen = int(t * rate)
            steps = dict(step=seen % total, total=total, seen=seen, rate=rate, rounds=seen // total)
        yield dict(time=1e9 + now, processes=rows, devices=devices, host=host, steps=steps)


def records(seed, scale, settle):
    """The highest of what came so far: a cache of segments under lengths that vary."""
    noise, best, values = random.Random(seed), 0.0, []
    for t in range(4000):
        best = max(best, noise.gammavariate(4, 1))
        values.append(best)
    return lambda t: 20 * GIB + scale * values[min(int(t * settle), 3999)]


def wander(seed, size, back):
    """Noise that remembers, and comes back."""
    noise, x, values = random.Random(seed), 0.0, []
    for t in range(4000):
        x += noise.gauss(0, 1) - back * x
        values.append(x)
    return lambda t: 4 * GIB + size * values[min(int(t), 3999)]


HEALTHY = {
    "still": Run(900),
    "steps of 0.3 s, 2 GiB": Run(900, main=lambda t: 4 * GIB + saw(t, 0.3, 2 * GIB)),
    "steps of 2 s, 1 GiB": Run(900, main=lambda t: 4 * GIB + saw(t, 2, GIB)),
    "steps of 7 s, 4 GiB": Run(900, main=lambda t: 4 * GIB + saw(t, 7, 4 * GIB)),
    "steps of 31 s, 2 GiB": Run(1800, main=lambda t: 4 * GIB + saw(t, 31, 2 * GIB)),
    "epochs of 60 s that collect 600 MiB": Run(1800, main=lambda t: 4 * GIB + saw(t, 60, 600 * MIB)),
    "epochs of 85 s that collect 600 MiB": Run(1800, main=lambda t: 4 * GIB + saw(t, 85, 600 * MIB)),
    "epochs of 240 s that collect 1 GiB, with a log": Run(1800, main=lambda t: 4 * GIB + saw(t, 240, GIB), steps=(2.0, 480)),
    "epochs of 500 s that collect 3 GiB, with a log": Run(2400, main=lambda t: 4 * GIB + saw(t, 500, 3 * GIB), steps=(5.0, 2500)),
    "steps of 3 s in epochs of 70 s": Run(1800, main=lambda t: 4 * GIB + saw(t, 3, GIB) + saw(t, 70, 800 * MIB)),
    "garbage collected every 45 s": Run(1800, main=lambda t: 3 * GIB + saw(t, 45, 400 * MIB)),
    "weights loaded for 40 s": Run(900, main=lambda t: min(t / 40, 1) * 16 * GIB + GIB),
    "weights loaded for 80 s": Run(900, main=lambda t: min(t / 80, 1) * 30 * GIB + GIB),
    "weights loaded, then moved to the device": Run(900, main=lambda t: 16 * GIB * min(t / 30, 1) + GIB if t < 60 else 3 * GIB, device=lambda t: 0.5 * GIB if t < 60 else 30 * GIB),
    "a cache in memory that fills in 75 s": Run(900, main=lambda t: 3 * GIB + min(t / 75, 1) * 6 * GIB),
    "a cache that fills in 300 s, with a log": Run(1500, main=lambda t: 3 * GIB + min(t / 300, 1) * 6 * GIB, steps=(4.0, 1200)),
    "a cache of random items, 60 s": Run(1500, main=lambda t: 3 * GIB + 8 * GIB * (1 - math.exp(-t / 60))),
    "a cache of random items, 110 s": Run(1800, main=lambda t: 3 * GIB + 8 * GIB * (1 - math.exp(-t / 110))),
    "a heap that fragments": Run(1800, main=lambda t: 3 * GIB + 300 * MIB * math.log1p(t / 5)),
    "evaluation of 20 s every 150 s": Run(1800, main=lambda t: 4 * GIB + (3 * GIB if t % 150 > 130 else 0), device=lambda t: 40 * GIB + (6 * GIB if t % 150 > 130 else 0)),
    "a checkpoint of 6 s every 120 s": Run(1800, main=lambda t: 4 * GIB + (8 * GIB if t % 120 > 114 else 0)),
    "segments of the device until the longest batch came": Run(1800, device=records(1, 2 * GIB, 1)),
    "the same, slowly": Run(1800, device=records(2, 1.5 * GIB, 0.2)),
    "the same, fast": Run(1800, device=records(3, 3 * GIB, 10)),
    "noise that remembers": Run(3000, main=wander(1, 20 * MIB, 0.05)),
    "noise that remembers for long": Run(3000, main=wander(2, 20 * MIB, 0.01)),
    "workers that start anew every 80 s": Run(1800, worker=lambda t: 200 * MIB + 300 * MIB * min(t / 80, 1), restart=80),
    "lists that workers copy by reading": Run(1800, worker=lambda t: 100 * MIB + 900 * MIB * (1 - math.exp(-t / 90))),
    "batches ahead in /dev/shm": Run(1800, shm=lambda t: 256 * MIB + saw(t, 11, 700 * MIB)),
    "three lengths, each for 200 s": Run(1200, main=lambda t: 4 * GIB, device=lambda t: (20 + 8 * min(int(t // 200), 2)) * GIB),
    "the first steps compile for 50 s": Run(900, main=lambda t: 3 * GIB + 1.5 * GIB * min(t / 50, 1) - (0.5 * GIB if t > 55 else 0) + saw(t, 1.3, 0.3 * GIB)),
    "a long warm-up": Run(1800, main=lambda t: 3 * GIB + 400 * MIB * (1 - math.exp(-t / 90)) + saw(t, 2.3, 0.4 * GIB)),
}

RATE = 3 * MIB  # bytes a second of each leak
LEAKS = {
    "main": Run(600, main=lambda t: 2 * GIB + RATE * t),
    "main, under steps of 0.3 s, 200 MiB": Run(600, main=lambda t: 2 * GIB + RATE * t + saw(t, 0.3, 200 * MIB)),
    "main, under steps of 2 s, 500 MiB": Run(900, main=lambda t: 2 * GIB + RATE * t + saw(t, 2, 500 * MIB)),
    "main, under steps of 7 s, 2 GiB": Run(3600, main=lambda t: 2 * GIB + RATE * t + saw(t, 7, 2 * GIB)),
    "main, a step up every 20 s": Run(600, main=lambda t: 2 * GIB + 20 * RATE * int(t / 20)),
    "main, after weights were loaded for 30 s": Run(600, main=lambda t: GIB + 8 * GIB * min(t / 30, 1) + RATE * t),
    "main, after a start that used 6 GiB": Run(600, main=lambda t: (8 * GIB if 5 < t < 20 else 2 * GIB) + RATE * t),
    "main, with a log": Run(600, main=lambda t: 2 * GIB + RATE * t, steps=(4.0, 200)),
    "main, epochs of 60 s that collect 100 MiB": Run(2400, main=lambda t: 2 * GIB + RATE * t + saw(t, 60, 100 * MIB)),
    "workers": Run(600, worker=lambda t: 300 * MIB + RATE / 4 * t),
    "the device": Run(600, device=lambda t: 20 * GIB + 2 * MIB * int(RATE * t / (2 * MIB))),
    "/dev/shm": Run(600, shm=lambda t: 64 * MIB + RATE * t + saw(t, 3, 60 * MIB)),
}

SLOW = 0.4 * MIB
SLOW_LEAKS = {
    "main": Run(600, main=lambda t: 2 * GIB + SLOW * t),
    "main, half a GiB in all": Run(600, main=lambda t: GIB // 2 + SLOW * t),
    "main, under steps of 0.3 s, 30 MiB": Run(600, main=lambda t: GIB + SLOW * t + saw(t, 0.3, 30 * MIB)),
    "main, under steps of 2 s, 50 MiB": Run(600, main=lambda t: GIB + SLOW * t + saw(t, 2, 50 * MIB)),
    "main, under steps of 2 s, 200 MiB": Run(900, main=lambda t: GIB + SLOW * t + saw(t, 2, 200 * MIB)),
    "main, a step up every 10 s": Run(600, main=lambda t: GIB + 10 * SLOW * int(t / 10)),
    "main, after imports of 20 s": Run(600, main=lambda t: 300 * MIB * min(t / 20, 1) + SLOW * max(0, t - 20)),
    "workers": Run(600, worker=lambda t: 150 * MIB + SLOW / 4 * t),
    "the device": Run(600, device=lambda t: 4 * GIB + 2 * MIB * int(SLOW * t / (2 * MIB))),
    "/dev/shm": Run(600, shm=lambda t: 64 * MIB + SLOW * t + saw(t, 3, 16 * MIB)),
}
CROWDED = {f"main, a machine shared by {n}, {i}": Run(600, main=lambda t, n=n: GIB // 2 + n / 1.5 * SLOW * t, crowd=n) for n in (3, 6, 10) for i in range(4)}
CROWDED |= {f"workers, a machine shared by {n}, {i}": Run(600, worker=lambda t, n=n: 150 * MIB + n / 1.5 * SLOW / 4 * t, crowd=n) for n in (3, 6, 10) for i in range(4)}


def judge(binary, run, seed):
    """(seconds, level, text) of every alert that was raised."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for look in looks(run, seed):
            file.write(json.dumps(look) + "\n")
        file.flush()
        out = subprocess.run([binary, "watch", "--replay", file.name], capture_output=True, text=True, check=True, env=dict(os.environ, TZ="UTC")).stdout
    raised = []
    for line in out.splitlines():
        found = re.match(r"(\d\d):(\d\d):(\d\d) (note|warning|critical) +(.*)", line)
        if found:
            hours, minutes, seconds = map(int, found.groups()[:3])
            raised.append(((3600 * hours + 60 * minutes + seconds - 1e9) % 86400, found[4], found[5]))
    return raised


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else "build/plimsoll"
    false, noted = 0, 0
    print(f"{len(HEALTHY)} healthy runs, {sum(r.seconds for r in HEALTHY.values()) / 3600:.1f} hours")
    for seed, (name, run) in enumerate(HEALTHY.items()):
        raised = judge(binary, run, seed)
        alarms = [r for r in raised if r[1] != "note"]
        notes = [r for r in raised if r[1] == "note" and "leak" in r[2]]
        false += bool(alarms)
        noted += bool(notes)
        print(f"  {name:<55} {'ALARM ' + str(alarms[:2]) if alarms else 'a note until the epoch ends' if notes else 'nothing'}", flush=True)
    found, leaks = 0, 0
    for title, group in ((f"{RATE / MIB:.0f} MiB a second", LEAKS), ("0.4 MiB a second", SLOW_LEAKS), ("0.4 MiB a second and more, now quick, now slow", CROWDED)):
        print(f"{len(group)} leaks of {title}")
        leaks += len(group)
        for seed, (name, run) in enumerate(group.items()):
            times = [r for r in judge(binary, run, seed) if "leak" in r[2] and r[1] != "note"]
            found += bool(times)
            print(f"  {name:<55} {f'found after {times[0][0]:.0f} s' if times else 'NOT FOUND'}", flush=True)
    print(f"{false} of {len(HEALTHY)} healthy runs raised an alarm, {noted} a note; {found} of {leaks} leaks were found")
    return 0 if false == 0 and found == leaks else 1


if __name__ == "__main__":
    sys.exit(main())

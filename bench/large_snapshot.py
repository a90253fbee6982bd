"""Writes a memory snapshot of about GIGABYTES, as PyTorch's _dump_snapshot would have: every entry has a list of frames of its own, frames are
shared. Allocations come and go as on a stack, so that the replay of the file can be checked.

    python3 bench/large_snapshot.py 2.5 /tmp/large.pickle
"""
import random, struct, sys

FRAMES, DEPTH, STACKS = 4000, 60, 20000
BASE, BLOCK, SEGMENT, DEEPEST = 0x7F0000000000, 512, 2 << 20, 4000


class Writer:
    """Pickle, protocol 4, without ever holding what was written."""
    def __init__(self, file):
        self.file, self.memos, self.texts, self.bytes = file, 0, {}, 2
        file.write(b"\x80\x04")

    def put(self, data):
        self.file.write(data)
        self.bytes += len(data)

    def memoize(self):
        self.put(b"\x94")
        self.memos += 1
        return self.memos - 1

    def get(self, memo): self.put(b"h" + bytes([memo]) if memo < 256 else b"j" + struct.pack("<I", memo))

    def text(self, value):
        if value in self.texts: return self.get(self.texts[value])
        raw = value.encode()
        self.put(b"\x8c" + bytes([len(raw)]) + raw)
        self.texts[value] = self.memoize()

    def integer(self, value):
        if value < 256: self.put(b"K" + bytes([value]))
        elif value < 1 << 31: self.put(b"J" + struct.pack("<i", value))
        else: self.put(b"\x8a\x08" + struct.pack("<q", value))

    def dict(self, **values):
        self.put(b"}")
        memo = self.memoize()
        self.put(b"(")
        for key, value in values.items():
            self.text(key)
            if callable(value): value()
            elif isinstance(value, str): self.text(value)
            else: self.integer(value)
        self.put(b"u")
        return memo

    def list(self, items):
        self.put(b"]")
        self.memoize()
        self.put(b"(")
        for i, item in enumerate(items):
            if i % 1000 == 999: self.put(b"e(")
            item()
        self.put(b"e")


def entries(w, size):
    known, live, time = [], [], 0
    stacks = [[random.randrange(FRAMES) for _ in range(DEPTH)] for _ in range(STACKS)]

    def frame(number):
        if number < len(known): return w.get(known[number])
        known.append(w.dict(name=f"function_{number}", filename=f"/home/user/model_{number % 50}.py", line=number % 900 + 1))

    for number in range(FRAMES): stacks[number % STACKS][number % DEPTH] = min(number, FRAMES - 1)

    def entry(action, address):
        nonlocal time
        time += 1
        stack = random.choice(stacks)
        return lambda: w.dict(action=action, addr=address, size=BLOCK, stream=0, time_us=time, device=0,
                              frames=lambda: w.list([lambda n=n: frame(min(n, len(known))) for n in stack]))

    yield lambda: w.dict(action="segment_alloc", addr=BASE, size=SEGMENT, stream=0, time_us=0, device=0, frames=lambda: w.list([]))
    while w.bytes < size:
        if live and (len(live) == DEEPEST or random.random() < 0.499):
            address = live.pop()
            yield entry("free_requested", address)
            yield entry("free_completed", address)
        else:
            live.append(BASE + len(live) * BLOCK)
            yield entry("alloc", live[-1])
    entries.live = len(live)


def blocks(w):
    for i in range(entries.live):
        yield lambda i=i: w.dict(address=BASE + i * BLOCK, size=BLOCK, requested_size=BLOCK, state="active_allocated", frames=lambda: w.list([]))
    rest = SEGMENT - entries.live * BLOCK
    if rest: yield lambda: w.dict(address=BASE + entries.live * BLOCK, size=rest, requested_size=0, state="inactive", frames=lambda: w.list([]))


def main():
    random.seed(0)
    with open(sys.argv[2], "wb", buffering=1 << 20) as file:
        w = Writer(file)
        w.dict(device_traces=lambda: w.list([lambda: w.list(entries(w, float(sys.argv[1]) * 1e9))]),
               segments=lambda: w.list([lambda: w.dict(device=0, address=BASE, total_size=SEGMENT, stream=0, segment_type="small",
                                                       blocks=lambda: w.list(blocks(w)))]))
        w.put(b".")


main()

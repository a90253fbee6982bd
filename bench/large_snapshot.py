"""Writes a memory snapshot of about GIGABYTES, as PyTorch's _dump_snapshot would have: every entry has a list of frames of its own, and frames
are shared. Allocations come and go as on a stack, so that the replay of the file can be checked.

    python3 bench/large_snapshot.py 2.5 /tmp/large.pickle
"""
import random, struct, sys

FRAMES, DEPTH, STACKS = 4000, 50, 20000  # distinct frames, frames of a stack, distinct stacks
BASE, BLOCK, SEGMENT, DEEPEST = 0x7F0000000000, 512, 2 << 20, 4000


class Writer:
    """Pickle, protocol 4, without ever holding what was written."""
    def __init__(self, file):
        self.file, self.memos, self.texts, self.bytes = file, 0, {}, 0

    def put(self, data, memos=0):
        self.file.write(data)
        self.bytes += len(data)
        self.memos += memos

    def get(self, memo): return b"h" + bytes([memo]) if memo < 256 else b"j" + struct.pack("<I", memo)

    def text(self, value):
        """A text that was written before is a reference of constant length."""
        if value not in self.texts:
            self.texts[value] = self.memos
            raw = value.encode()
            return self.put(b"\x8c" + bytes([len(raw)]) + raw + b"\x94", 1)
        self.put(self.get(self.texts[value]))

    def integer(self, value): self.put(number(value))

    def open(self, opcode): self.put(opcode + b"\x94(", 1)


def number(value):
    if value < 256: return b"K" + bytes([value])
    return b"J" + struct.pack("<i", value) if value < 1 << 31 else b"\x8a\x08" + struct.pack("<q", value)


def write_entry(w, action, address, time, size, frames):
    w.open(b"}")
    for key, value in (("action", action), ("addr", address), ("size", size), ("stream", 0), ("time_us", time)):
        w.text(key)
        w.text(value) if isinstance(value, str) else w.integer(value)
    w.text("frames")
    frames()
    w.put(b"u")


def write_entries(w, size):
    """The first ones bring the frames and texts; after that an entry is a few pieces of bytes."""
    frames, live, time, written = [], 0, 0, 0

    def new_frames():
        w.open(b"]")
        for number_ in range(len(frames), min(len(frames) + DEPTH, FRAMES)):
            frames.append(w.memos)
            w.open(b"}")
            for key, value in (("name", f"function_{number_}"), ("filename", f"/home/user/model_{number_ % 50}.py"), ("line", number_ % 900 + 1)):
                w.text(key)
                w.text(value) if isinstance(value, str) else w.integer(value)
            w.put(b"u")
        w.put(b"e")

    def next_entry(write):
        nonlocal written
        if written and written % 1000 == 0: w.put(b"e(")
        write()
        written += 1

    write_entry(w, "segment_alloc", BASE, 0, SEGMENT, new_frames)
    written = 1
    while len(frames) < FRAMES or live < 2:
        next_entry(lambda: write_entry(w, "alloc", BASE + live * BLOCK, time, BLOCK, new_frames))
        live, time = live + 1, time + 1
    for action in ("free_requested", "free_completed"):
        next_entry(lambda: write_entry(w, action, BASE + (live - 1) * BLOCK, time, BLOCK, new_frames))
    live -= 1
    key = {name: w.get(memo) for name, memo in w.texts.items()}
    begin = {action: b"}\x94(" + key["action"] + key[action] + key["addr"] for action in ("alloc", "free_requested", "free_completed")}
    middle = key["size"] + number(BLOCK) + key["stream"] + number(0) + key["time_us"]
    refs = [w.get(memo) for memo in frames]
    stacks = [key["frames"] + b"]\x94(" + b"".join(random.choices(refs, k=DEPTH)) + b"eu" for _ in range(STACKS)]
    while w.bytes < size:
        pops = live and (live == DEEPEST or random.random() < 0.499)
        at = BASE + (live - 1 if pops else live) * BLOCK
        for action in ("free_requested", "free_completed") if pops else ("alloc",):
            time += 1
            next_entry(lambda: w.put(begin[action] + number(at) + middle + number(time) + random.choice(stacks), 2))
        live += -1 if pops else 1
    return live


def write_segment(w, live):
    w.open(b"}")
    for key, value in (("device", 0), ("address", BASE), ("total_size", SEGMENT), ("stream", 0), ("segment_type", "small")):
        w.text(key)
        w.text(value) if isinstance(value, str) else w.integer(value)
    w.text("blocks")
    w.open(b"]")
    for i in range(live + 1):
        used = i < live
        w.open(b"}")
        for key, value in (("address", BASE + i * BLOCK), ("size", BLOCK if used else SEGMENT - live * BLOCK), ("requested_size", BLOCK if used else 0),
                           ("state", "active_allocated" if used else "inactive")):
            w.text(key)
            w.text(value) if isinstance(value, str) else w.integer(value)
        w.put(b"u")
    w.put(b"eu")


def main():
    random.seed(0)
    with open(sys.argv[2], "wb", buffering=1 << 20) as file:
        w = Writer(file)
        w.put(b"\x80\x04")
        w.open(b"}")
        w.text("device_traces")
        w.open(b"]")
        w.open(b"]")
        live = write_entries(w, float(sys.argv[1]) * 1e9)
        w.put(b"ee")
        w.text("segments")
        w.open(b"]")
        write_segment(w, live)
        w.put(b"eu.")


main()

"""What PyTorch's own viewer, torch.cuda._memory_viz, makes of a memory snapshot; one JSON object. Every version has the flame graphs of
segments and blocks, those from 2.0 on also the trace and the page."""
import json, os, pickle, subprocess, sys, tempfile

try:
    import torch
    import torch.cuda._memory_viz as viz
except ImportError as error:
    print(json.dumps({"missing": str(error)}))
    sys.exit()


def folded_bytes(text):
    """The last number of each line of a flame graph before it is drawn; drawing it needs a script from the network."""
    return sum(int(line.rsplit(" ", 1)[1]) for line in text.splitlines())


def peak_of(trace):
    live, peak = 0, 0
    for entry in trace:
        if entry["action"] == "alloc": live += entry["size"]
        if entry["action"] == "free_completed": live -= entry["size"]
        peak = max(peak, live)
    return peak


def command(action, file, *more):
    run = subprocess.run([sys.executable, "-m", "torch.cuda._memory_viz", action, file, *more], capture_output=True, text=True)
    if run.returncode: sys.exit(f"{action}: {run.stderr[-2000:]}")
    return run.stdout


with open(sys.argv[1], "rb") as file: data = pickle.load(file)
whole = hasattr(viz, "trace_plot")
given = data if whole else data["segments"]  # up to 1.13 a snapshot was the list of segments
out = {"torch": torch.__version__, "whole": whole, "peak": peak_of(data["device_traces"][0]), "entries": len(data["device_traces"][0]),
       "segments": folded_bytes(viz.segments(given, format_flamegraph=str)), "memory": folded_bytes(viz.memory(given, format_flamegraph=str)),
       "reserved": sum(s["total_size"] for s in data["segments"]),
       "allocated": sum(b["size"] for s in data["segments"] for b in s["blocks"] if b["state"] == "active_allocated")}
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "given.pickle")
    with open(path, "wb") as file: pickle.dump(given, file)
    out["stats"] = command("stats", path) != ""
    if whole:
        out["trace"] = command("trace", path).splitlines()[1]
        for plot in ("trace_plot", "segment_plot"):
            page = os.path.join(folder, plot + ".html")
            command(plot, path, "-o", page)
            with open(page) as file: out[plot] = "<html>" in file.read()
print(json.dumps(out))

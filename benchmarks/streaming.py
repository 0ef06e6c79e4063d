"""Training, evaluation and prediction on more data than memory: what is held, how fast it goes, whether it is the same.

Generates a folder of pictures and a table of texts, and runs the commands on each in a process whose memory has a
limit: the kernel gives it so many MB beyond what it held after a small run (RLIMIT_DATA, which counts everything but
files). The same is tried with all data in memory, which must not fit, and once more without the limit: the weights
must be the same bytes.

python benchmarks/streaming.py                               1 GB of each, 128 MB beyond the program
python benchmarks/streaming.py --megabytes 300 --limit 64    as the slow test does
python benchmarks/streaming.py --rates                       pictures a second: decoded, and read once they are
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SIDE = 128
BYTES_PER_TEXT = 16_000
COMMON = ["--epochs", "1", "--batch-size", "32", "--model"]
MODELS = {
    "pictures": ["cnn-small", "--option", "width=0.1"],
    "texts": ["textcnn", "--option", "dim=10", "--max-length", "50"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000, help="of pictures once decoded, and of texts")
    parser.add_argument("--limit", type=int, default=128, help="MB beyond what the program holds after a small run")
    parser.add_argument("--kinds", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--rates", action="store_true", help="time decoding against reading what was decoded")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.rates:
            rates(make_pictures(Path(folder) / "pictures", 50))
            return
        for kind in given.kinds:
            make = {"pictures": make_pictures, "texts": make_texts}[kind]
            small, large = (make(Path(folder) / kind / str(size), size) for size in (2, given.megabytes))
            print(f"{kind}: {given.megabytes} MB, {given.limit} MB allowed", flush=True)
            weights = set()
            for mode, most, limit in (
                ("on disk", 2**20, given.limit),
                ("in memory", 2**50, given.limit),
                ("in memory", 2**50, 0),
            ):
                found = in_another_process(kind, small, large, most, limit)
                print(f"  {mode}, {'limited' if limit else 'no limit'}: {told(found)}", flush=True)
                weights.add(found.get("weights"))
                if mode == "on disk" or not limit:
                    assert "weights" in found, found["error"]
                else:
                    assert "weights" not in found, "the limit limits nothing"
            assert len(weights - {None}) == 1, "other weights"


def told(found: dict) -> str:
    if "error" in found:
        return f"fails ({found['error']})"
    parts = [f"{name} {seconds:.0f} s" for name, seconds in found["seconds"].items()]
    first, last, most = found["peaks"]
    held = f"in the first tenth of the epoch {first:.0f} MB more than after the small run, in the last {last:.0f}"
    return f"{', '.join(parts)}; {held}, at most {most:.0f}"


def rates(folder: Path) -> None:
    import torch

    from torchcaps.data import load_folder

    for most in ("0", str(2**50)):
        os.environ["TORCHCAPS_DATA_BYTES"] = most
        start = time.process_time()
        data = load_folder(folder)
        decoded = time.process_time()
        for rows in torch.randperm(len(data)).split(32):
            data.images[rows]
        read = time.process_time()
        place = "disk" if most == "0" else "memory"
        speeds = len(data) / (decoded - start), len(data) / (read - decoded)
        print(f"decoded {speeds[0]:,.0f} pictures a second of processor time, read from {place} {speeds[1]:,.0f}")


def make_pictures(folder: Path, megabytes: int) -> Path:
    import numpy as np
    from PIL import Image

    generator = np.random.default_rng(0)
    for name in ("dark", "light"):
        (folder / name).mkdir(parents=True)
    for number in range(max(400, megabytes * 10**6 // (3 * SIDE * SIDE))):
        pixels = generator.integers(0, 128, (8, 8, 3), dtype=np.uint8) + 128 * (number % 2)
        picture = Image.fromarray(pixels.astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.NEAREST)
        picture.save(folder / ("dark", "light")[number % 2] / f"{number}.png", compress_level=1)
    return folder


def make_texts(folder: Path, megabytes: int) -> Path:
    import numpy as np

    generator = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(2000)])
    folder.mkdir(parents=True)
    with (folder / "texts.csv").open("w") as file:
        file.write("text,label\n")
        for number in range(max(400, megabytes * 10**6 // BYTES_PER_TEXT)):
            label = number % 2
            chosen = generator.integers(0, 1000, BYTES_PER_TEXT // 8) + 500 * label
            file.write(f"{' '.join(words[chosen])},{label}\n")
    return folder / "texts.csv"


def in_another_process(kind: str, small: Path, large: Path, most: int, limit: int) -> dict:
    environment = os.environ | {"TORCHCAPS_DATA_BYTES": str(most), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, __file__, "--child", kind, small, large, str(limit)]
    done = subprocess.run(list(map(str, words)), env=environment, capture_output=True, text=True)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"error": (done.stderr.strip().splitlines() or ["killed"])[-1]}


def child(kind: str, small: str, large: str, limit: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        commands(kind, small, Path(folder) / "small")  # so that all that is not data is in memory
        before = held("RssAnon")
        if int(limit):
            resource.setrlimit(resource.RLIMIT_DATA, (held("VmData") + int(limit) * 10**6,) * 2)
        samples, over = [], threading.Event()

        def watch() -> None:
            while not over.wait(0.05):
                samples.append((time.time(), held("RssAnon") - before))

        thread = threading.Thread(target=watch)
        thread.start()
        out = Path(folder) / "large"
        try:
            seconds = commands(kind, large, out)
        except (MemoryError, RuntimeError) as error:
            print(json.dumps({"error": f"{type(error).__name__}: {str(error)[:80]}"}))
            return
        finally:
            over.set()
            thread.join()
        weights = hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
        start, end = ((out / name).stat().st_mtime for name in ("config.json", "last.ckpt"))
    training = [memory for moment, memory in samples if start <= moment <= end]
    tenth = max(1, len(training) // 10)
    peaks = [max(part) / 1e6 for part in (training[:tenth], training[-tenth:], [memory for _, memory in samples])]
    print(json.dumps({"seconds": seconds, "weights": weights, "peaks": peaks}))


def commands(kind: str, data: str, out: Path) -> dict[str, float]:
    """Train, evaluate and predict; how long each took."""
    from torchcaps.apps.cli.main import main

    seconds = {}
    for words in (
        ["train", data, *COMMON, *MODELS[kind], "--out", out],
        ["evaluate", out, "--no-pictures"],
        ["predict", out, data],
    ):
        start = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(list(map(str, words))) == 0
        seconds[words[0]] = time.perf_counter() - start
    return seconds


def held(what: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    child(*sys.argv[2:]) if sys.argv[1:2] == ["--child"] else main()

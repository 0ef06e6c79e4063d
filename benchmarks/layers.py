"""Time torchcaps' layers against the textbook version of themselves, in one run.

Both are first checked to give the same numbers; then their runs alternate, and medians with the spread are printed.

Run: python benchmarks/layers.py [--repeats 5] [--json FILE]
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from textbook import conv_em, dense_dynamic

import torchcaps as tc


def dense_case():
    layer = tc.DenseCapsules(1152, 10, 8, 16)
    poses = tc.squash(torch.randn(128, 1152, 8)).requires_grad_()
    children = tc.Capsules(poses, tc.length(poses.detach()))
    return "dense 1152x8 -> 10x16, batch 128, dynamic 3", poses, layer, {
        "textbook": lambda: dense_dynamic(poses, layer.votes.weight),
        "torchcaps": lambda: layer(children).poses,
    }  # fmt: skip


def conv_case():
    layer = tc.ConvCapsules(32, 32, 16, 16, 3, stride=2, votes="matrix", routing="em", competition="window")
    poses = torch.randn(2, 14, 14, 32, 16, requires_grad=True)
    children = tc.Capsules(poses, torch.rand(2, 14, 14, 32))
    return "EM conv 14x14x32 -> 6x6x32, batch 2, windows, 3", poses, layer, {
        "textbook": lambda: conv_em(poses, children.activations, layer.votes.weight, 3, 2)[0],
        "torchcaps": lambda: layer(children).poses,
    }  # fmt: skip


def seconds(run, backward):
    start = time.perf_counter()
    if backward:
        run().square().sum().backward()
    else:
        with torch.inference_mode():
            run()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each (default 5)")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, float32")
    print(f"{'':50}{'':>20}{'textbook':>26}{'torchcaps':>26}{'ratio':>8}")
    rows = []
    for case in (dense_case, conv_case):
        name, poses, layer, runs = case()
        with torch.inference_mode():
            torch.testing.assert_close(runs["torchcaps"](), runs["textbook"](), rtol=1e-3, atol=1e-4)
        for backward in (False, True):
            times = {who: [] for who in runs}
            for repeat in range(arguments.repeats + 1):
                for who, run in runs.items():
                    took = seconds(run, backward)
                    poses.grad = None
                    layer.zero_grad()
                    if repeat:  # the first one warms up
                        times[who].append(took)
            work = "forward + backward" if backward else "forward"
            medians = {who: statistics.median(values) for who, values in times.items()}
            ratio = medians["textbook"] / medians["torchcaps"]
            cells = [
                f"{1e3 * medians[who]:.0f} ms ({1e3 * min(times[who]):.0f}-{1e3 * max(times[who]):.0f})" for who in runs
            ]
            print(f"{name:50}{work:>20}{cells[0]:>26}{cells[1]:>26}{ratio:>7.1f}x", flush=True)
            rows.append({"case": name, "work": work, "seconds": times, "ratio": ratio})
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))
        print(f"figures written to {arguments.json}")


if __name__ == "__main__":
    main()

"""python -m torture: all campaigns, or those that are named, and a table of what they found."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path

from torture.result import Result, table

CAMPAIGNS = {  # module, what is counted, how many
    "kill": ("kill", "kills", 100),
    "odd": ("odd", "trainings", 10),
    "writers": ("writers", "resumes", 100),
    "links": ("links", "runs", 200),
    "disk": ("disk", "disks", 20),
    "broken": ("broken", "mutations", 200),
    "fuzz": ("fuzz", "inputs", 60_000),
    "routing": ("routings", "cases", 110_000),
    "leaks": ("leaks", "cycles", 1000),
    "sanitizers": ("sanitizers", "calls", 10_000),
    "server": ("server", "requests", 10_000),
}


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m torture", description=__doc__)
    parser.add_argument("campaigns", nargs="*", metavar="CAMPAIGN", help=f"{', '.join(CAMPAIGNS)}; left out, all")
    for name, (_, count, default) in CAMPAIGNS.items():
        parser.add_argument(
            f"--{count}", type=int, default=default, metavar="N", help=f"of {name}; {default:,} if left out"
        )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the same seed tries the same")
    parser.add_argument(
        "--json", type=Path, default=Path("out/torture.json"), metavar="FILE", help="the results as JSON"
    )
    options = parser.parse_args(words)
    unknown = [name for name in options.campaigns if name not in CAMPAIGNS]
    if unknown:
        parser.error(f"expected {', '.join(CAMPAIGNS)}, got {unknown[0]}")
    results: list[Result] = []
    for name, (module, count, _) in CAMPAIGNS.items():
        if options.campaigns and name not in options.campaigns:
            continue
        started = time.perf_counter()
        found = importlib.import_module(f"torture.{module}").run(getattr(options, count), options.seed)
        results += found
        faults = sum(len(each.faults) for each in found)
        print(f"{name}: {faults} faults, {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    print(table(results))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps([vars(each) for each in results], indent=1) + "\n")
    return 1 if any(each.faults for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())

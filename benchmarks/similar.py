"""Do capsules say better than one averaged vector which texts are alike?

    python benchmarks/similar.py RUN

For each text of a run's test part, the five most like it are found, by its class capsules and by single vectors; the
figure is how far their labels overlap with its own (shared labels as a share of all, the mean of the five), with the
95 % interval of the difference to averaged word vectors over texts. Made for runs on texts with several labels.
"""

from __future__ import annotations

import argparse
import math
import warnings
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from torchcaps.analysis.similar import likeness, text_poses
from torchcaps.functional import unit
from torchcaps.runs.run import Run


def overlap_of_nearest(alike: Tensor, truth: Tensor, count: int = 5) -> Tensor:
    """For each text, how far the labels of those most like it overlap with its own."""
    shared = (truth.unsqueeze(1) & truth).sum(-1) / (truth.unsqueeze(1) | truth).sum(-1).clamp(min=1)
    nearest = alike.fill_diagonal_(-math.inf).topk(count, 1).indices
    return shared.gather(1, nearest).mean(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a trained run on texts")
    run = Run.open(parser.parse_args().run)
    with warnings.catch_warnings():  # of texts that are longer than what the network reads
        warnings.simplefilter("ignore")
        test = run.load_parts().test
        encoded = test.encoded
    truth = test.labels if test.many else one_hot(test.labels, len(test.classes)).bool()
    words = run.load_model().words.weight.detach()
    averaged = unit(torch.stack([words[row].sum(0) for row in encoded]))
    poses = text_poses(run, test.texts)
    lengths, mean = unit(poses.norm(dim=-1)), unit(poses.mean(1))
    ways = {
        "averaged word vectors, as the network learned them": averaged @ averaged.mT,
        "class capsules": likeness(poses, poses),
        "their lengths alone": lengths @ lengths.mT,
        "their mean, one vector": mean @ mean.mT,
    }
    scores = {name: overlap_of_nearest(alike, truth) for name, alike in ways.items()}
    first = next(iter(scores.values()))
    print(f"{len(truth)} texts, overlap of labels with the five most alike")
    for name, score in scores.items():
        apart = score - first
        half = 1.96 * float(apart.std()) / math.sqrt(len(apart))
        note = "" if score is first else f"   {apart.mean():+.3f} (95 % interval {half:.3f} either way)"
        print(f"{name:52s} {score.mean():.3f}{note}")


if __name__ == "__main__":
    main()

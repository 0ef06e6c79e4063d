"""A linear classifier on the pixels of a data set: what a network must beat.

    python benchmarks/linear.py toys
    python benchmarks/linear.py eth-80 --size 32 --data-dir path/to/data

The penalty is chosen on the validation part; the figure is that of the test part, after training on both other parts.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from torchcaps.data import make_parts, open_data


def pixels(part):
    return part.images.flatten(1).numpy() / 255, part.labels.numpy()


def classifier(penalty):
    return make_pipeline(StandardScaler(), LogisticRegression(C=penalty, max_iter=200))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="toys")
    parser.add_argument("--size", type=int)
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts = make_parts(open_data(arguments.data, folder=arguments.data_dir, size=arguments.size))
    train, validation, test = (pixels(part) for part in parts[:3])
    scores = {penalty: classifier(penalty).fit(*train).score(*validation) for penalty in (1e-4, 1e-3, 1e-2)}
    best = max(scores, key=scores.get)
    both = [np.concatenate(pair) for pair in zip(train, validation, strict=True)]
    accuracy = classifier(best).fit(*both).score(*test)
    print(f"{arguments.data}: linear classifier {accuracy:.4f} on {len(test[1]):,} test images (C = {best:g})")


if __name__ == "__main__":
    main()

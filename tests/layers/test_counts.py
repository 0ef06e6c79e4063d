"""The papers print how many parameters their networks have: the cheapest proof of an architecture."""

import torch
from torch import nn

import torchcaps as tc


def count(*modules):
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def test_capsnet_of_sabour_2017():
    conv = nn.Conv2d(1, 256, 9)
    primary = tc.PrimaryCapsules(256, 32, 8, kernel_size=9, stride=2)
    digits = tc.DenseCapsules(1152, 10, 8, 16)
    decoder = tc.DenseDecoder(10, 16, (1, 28, 28))
    assert count(conv, primary, digits) == 6_804_224
    assert count(conv, primary, digits, decoder) == 8_215_568
    biased = tc.DenseCapsules(1152, 10, 8, 16, bias=True)  # as in the official code
    assert count(conv, primary, biased, decoder) == 8_215_728
    with torch.no_grad():
        children = primary(conv(torch.rand(1, 1, 28, 28)).relu()).flatten()
        assert children.poses.shape == (1, 1152, 8)
        images = decoder(digits(children))
    assert images.shape == (1, 1, 28, 28)


def matrix_capsules(channels, a, b, c, d, classes=5):
    return (
        nn.Conv2d(channels, a, 5, stride=2),
        tc.PrimaryCapsules(a, b, 16, kind="matrix"),
        tc.ConvCapsules2d(b, c, 16, 16, 3, stride=2, votes="matrix", routing="em"),
        tc.ConvCapsules2d(c, d, 16, 16, 3, votes="matrix", routing="em"),
        tc.ClassCapsules(d, classes, 16, 16),
    )


def test_matrix_capsules_of_hinton_2018():
    betas = 2 * (32 + 32 + 5)
    assert count(*matrix_capsules(1, 32, 32, 32, 32)) == 316_256 + betas
    assert count(*matrix_capsules(2, 32, 32, 32, 32)) == 317_056 + betas
    small_betas = 2 * (16 + 16 + 5)
    assert count(*matrix_capsules(2, 64, 8, 16, 16)) == 68_680 + small_betas


def test_matrix_capsules_run_on_smallnorb_sizes():
    conv, *capsules = matrix_capsules(2, 8, 4, 4, 4)
    grid = conv(torch.rand(1, 2, 32, 32)).relu()
    sizes = []
    for layer in capsules:
        grid = layer(grid)
        sizes.append(tuple(grid.poses.shape[1:-2]))
    assert sizes == [(14, 14), (6, 6), (4, 4), ()]

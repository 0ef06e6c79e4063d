"""Capsule-A of Zhao 2018 for one text, in plain loops and the paper's symbols."""

import math


def squash(s):
    n2 = sum(x * x for x in s)
    return [x * math.sqrt(n2) / (1 + n2) for x in s] if n2 else [0.0] * len(s)


def length(v):
    return math.sqrt(sum(x * x for x in v))


def routing(children, W, b, iterations, leaky, amendment):
    """Algorithm 1 with shared matrices W[j], vote biases b[j] and child capsules; gives the parents v[j]."""
    d = len(b[0])
    votes = [
        [[sum(W[j][e][k] * u[e] for e in range(len(u))) + b[j][k] for k in range(d)] for j in range(len(W))]
        for u in children
    ]
    activations = [length(u) if amendment else 1.0 for u in children]
    logits = [[0.0] * len(W) for _ in children]
    for _ in range(iterations):
        v = []
        for j in range(len(W)):
            s = [0.0] * d
            for i in range(len(children)):
                total = sum(math.exp(x) for x in logits[i]) + (1.0 if leaky else 0.0)
                c = activations[i] * math.exp(logits[i][j]) / total
                s = [s[k] + c * votes[i][j][k] for k in range(d)]
            v.append(squash(s))
        for i in range(len(children)):
            for j in range(len(W)):
                logits[i][j] += sum(votes[i][j][k] * v[j][k] for k in range(d))
    return v


def capsule_a(x, Wa, ba, Wb, bb, C, Wc, bc, K2, Wd, bd, iterations=3, leaky=True, amendment=True):
    """Class capsules, noise included, of the word vectors x[l][v].

    Wa[b][v][k], ba[b]: the n-gram convolution. Wb[c * d + e][b], bb: primary capsules. Wc[j], bc[j]: convolutional
    capsules with windows of K2. Wd[j], bd[j]: the classes.
    """
    K1, d = len(Wa[0][0]), len(Wb) // C
    m = [
        [
            max(0.0, ba[b] + sum(Wa[b][v][k] * x[t + k][v] for k in range(K1) for v in range(len(x[0]))))
            for b in range(len(Wa))
        ]
        for t in range(len(x) - K1 + 1)
    ]
    p = [
        [
            squash([bb[c * d + e] + sum(Wb[c * d + e][b] * row[b] for b in range(len(row))) for e in range(d)])
            for c in range(C)
        ]
        for row in m
    ]
    windows = [[p[t + k][c] for k in range(K2) for c in range(C)] for t in range(len(p) - K2 + 1)]
    small = [v for window in windows for v in routing(window, Wc, bc, iterations, leaky, amendment)]
    return routing(small, Wd, bd, iterations, leaky, amendment)

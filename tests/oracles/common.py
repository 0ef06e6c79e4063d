import torch


def norm(x):
    return sum(x_h * x_h for x_h in x) ** 0.5


def dot(x, y):
    return sum(x_h * y_h for x_h, y_h in zip(x, y, strict=True))


def softmax(b, leak=False):
    """Over the parents of one child; `leak` is one more parent with logit zero, forgotten afterwards."""
    e = [torch.exp(b_j) for b_j in b]
    z = sum(e) + (1.0 if leak else 0.0)
    return [e_j / z for e_j in e]


def hardmax(b):
    best = max(float(b_j.detach()) for b_j in b)
    winners = [float(b_j.detach()) == best for b_j in b]
    return [torch.tensor(float(w) / sum(winners), dtype=torch.float64) for w in winners]


def stacked(v, a, c):
    return torch.stack(v), torch.stack(a), torch.stack([torch.stack(c_i) for c_i in c])

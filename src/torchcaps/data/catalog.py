"""The registry of data sets by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchcaps._core.errors import check_choice
from torchcaps._core.extensions import Registry
from torchcaps.data.base import Labeled, Splits
from torchcaps.data.builtin import digits, mnist_5k
from torchcaps.data.corpora import ag_news, cr, mr, reuters, reuters_full, reviews, snips, sst2, subj, trec
from torchcaps.data.disk_store import data_folder
from torchcaps.data.eth80 import eth80
from torchcaps.data.generated import affnist, affnist_5k, multimnist, multimnist_5k, translated, translated_5k
from torchcaps.data.mnist import fashion_mnist, kmnist, mnist
from torchcaps.data.photos import cifar10, cifar100, svhn
from torchcaps.data.smallnorb import smallnorb
from torchcaps.data.toys import toys, toys_full

# Each takes the folder of downloaded data. The first line of its docstring is shown by `torchcaps list`.
_OWN: dict[str, Callable[[Path], Splits | Labeled]] = {
    "mnist-5k": mnist_5k,
    "digits": digits,
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "kmnist": kmnist,
    "cifar-10": cifar10,
    "cifar-100": cifar100,
    "svhn": svhn,
    "toys": toys,
    "toys-full": toys_full,
    "smallnorb": smallnorb,
    "eth-80": eth80,
    "multimnist": multimnist,
    "multimnist-5k": multimnist_5k,
    "translated": translated,
    "translated-5k": translated_5k,
    "affnist": affnist,
    "affnist-5k": affnist_5k,
    "reviews": reviews,
    "mr": mr,
    "sst2": sst2,
    "subj": subj,
    "trec": trec,
    "cr": cr,
    "ag-news": ag_news,
    "reuters": reuters,
    "reuters-full": reuters_full,
    "snips": snips,
}
DATASETS: Registry[Callable[[Path], Splits | Labeled]] = Registry("torchcaps.datasets", _OWN)


def load_dataset(name: str = "mnist-5k", folder: Path | str | None = None) -> Any:
    """A data set by name: `Splits`, or a set in one piece where it has no parts of its own.

    `DATASETS` lists the names; folder: see `data_folder`.
    """
    check_choice("load_dataset", "name", name, list(DATASETS))
    return DATASETS[name](data_folder(folder))

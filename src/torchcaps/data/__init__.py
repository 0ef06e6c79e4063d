"""Data: labelled images by name, or from a user's own files."""

from torchcaps.data.base import ImageSet, Splits, split, stratified_order, three_way
from torchcaps.data.builtin import DATASETS, load_dataset
from torchcaps.data.files import load_folder, load_idx, load_npz, read_idx

__all__ = [
    "DATASETS",
    "ImageSet",
    "Splits",
    "load_dataset",
    "load_folder",
    "load_idx",
    "load_npz",
    "read_idx",
    "split",
    "stratified_order",
    "three_way",
]

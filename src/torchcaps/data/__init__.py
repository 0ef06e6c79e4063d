"""Data: labelled images by name, or from a user's own files."""

from torchcaps.data.base import Batch, Images, ImageSet, Splits, hold_out, split, stratified_order, three_way
from torchcaps.data.catalogue import DATASETS, data_folder, load_dataset
from torchcaps.data.files import load_folder, load_idx, load_npz, read_idx

__all__ = [
    "DATASETS",
    "Batch",
    "ImageSet",
    "Images",
    "Splits",
    "data_folder",
    "hold_out",
    "load_dataset",
    "load_folder",
    "load_idx",
    "load_npz",
    "read_idx",
    "split",
    "stratified_order",
    "three_way",
]

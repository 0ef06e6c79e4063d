"""Data: labelled images by name, or from a user's own files."""

from torchcaps.data.augment import AUGMENTATIONS, affine, brightness, centre_crop, contrast, crop, flip, shift
from torchcaps.data.base import (
    Batch,
    Images,
    ImageSet,
    Splits,
    hold_out,
    in_classes,
    split,
    stratified_order,
    three_way,
)
from torchcaps.data.catalogue import DATASETS, data_folder, load_dataset
from torchcaps.data.files import load_folder, load_idx, load_npz, pictures_in, read_idx, read_picture
from torchcaps.data.generated import PairSet
from torchcaps.data.smallnorb import read_norb, write_norb
from torchcaps.data.sources import make_parts, open_data
from torchcaps.data.viewpoints import viewpoint_split

__all__ = [
    "AUGMENTATIONS",
    "DATASETS",
    "Batch",
    "ImageSet",
    "Images",
    "PairSet",
    "Splits",
    "affine",
    "brightness",
    "centre_crop",
    "contrast",
    "crop",
    "data_folder",
    "flip",
    "hold_out",
    "in_classes",
    "load_dataset",
    "load_folder",
    "load_idx",
    "load_npz",
    "make_parts",
    "open_data",
    "pictures_in",
    "read_idx",
    "read_norb",
    "read_picture",
    "shift",
    "split",
    "stratified_order",
    "three_way",
    "viewpoint_split",
    "write_norb",
]

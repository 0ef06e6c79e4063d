"""Data: labeled images and texts by name, from files, or from arrays and Datasets."""

from torchcaps.data.augment import AUGMENTATIONS, affine, brightness, center_crop, contrast, crop, flip, shift
from torchcaps.data.base import (
    Batch,
    Examples,
    ImageSet,
    Labeled,
    Splits,
    hold_out,
    in_classes,
    split,
    stratified_order,
    three_way,
)
from torchcaps.data.catalog import DATASETS, load_dataset
from torchcaps.data.disk_store import Names, Stack, Strings, data_folder, only_reading
from torchcaps.data.files import load_folder, load_idx, load_npz, read_idx
from torchcaps.data.generated import PairSet
from torchcaps.data.own import ArraySet, DatasetExamples, as_examples
from torchcaps.data.pictures import pictures_in, read_picture
from torchcaps.data.rows import is_table
from torchcaps.data.smallnorb import read_norb, write_norb
from torchcaps.data.sources import make_parts, open_data
from torchcaps.data.split_file import read_names, row_finder, write_names
from torchcaps.data.subwords import Subwords
from torchcaps.data.tables import Columns, cells_in, load_table, texts_in
from torchcaps.data.texts import TextSet, Vocabulary, padded
from torchcaps.data.vectors import WordVectors, read_vectors
from torchcaps.data.viewpoints import viewpoint_split

__all__ = [
    "AUGMENTATIONS",
    "DATASETS",
    "ArraySet",
    "Batch",
    "Columns",
    "DatasetExamples",
    "Examples",
    "ImageSet",
    "Labeled",
    "Names",
    "PairSet",
    "Splits",
    "Stack",
    "Strings",
    "Subwords",
    "TextSet",
    "Vocabulary",
    "WordVectors",
    "affine",
    "as_examples",
    "brightness",
    "cells_in",
    "center_crop",
    "contrast",
    "crop",
    "data_folder",
    "flip",
    "hold_out",
    "in_classes",
    "is_table",
    "load_dataset",
    "load_folder",
    "load_idx",
    "load_npz",
    "load_table",
    "make_parts",
    "only_reading",
    "open_data",
    "padded",
    "pictures_in",
    "read_idx",
    "read_names",
    "read_norb",
    "read_picture",
    "read_vectors",
    "row_finder",
    "shift",
    "split",
    "stratified_order",
    "texts_in",
    "three_way",
    "viewpoint_split",
    "write_names",
    "write_norb",
]

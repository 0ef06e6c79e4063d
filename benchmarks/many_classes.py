"""Texts of many classes, as folders of train.csv, dev.csv and test.csv.

    python benchmarks/many_classes.py wordnet /usr/share/wordnet glosses/  # Debian package wordnet-base, 150 classes
    python benchmarks/many_classes.py trec trec/ questions/                  # TREC's fine classes: about 50
    torchcaps train glosses/

wordnet: the first gloss of up to 150 nouns below each of 150 nouns that have no noun in common, such as fish or
documents; what kind of thing is explained? trec: train_5500.label and TREC_10.label, a tenth held out.
"""

import argparse
import csv
import random
from collections import defaultdict
from pathlib import Path

CLASSES, FEWEST, MOST, TAKEN = 150, 80, 400, 150


def read_nouns(path):
    """Words, nouns above and gloss of every noun, by its number."""
    nouns = {}
    for line in path.read_text(encoding="latin-1").splitlines():
        if line.startswith("  "):
            continue
        head, gloss = line.split(" | ", 1)
        fields = head.split()
        words = int(fields[3], 16)
        place = 4 + 2 * words
        pointers = fields[place + 1 : place + 1 + 4 * int(fields[place])]
        above = [pointers[i + 1] for i in range(0, len(pointers), 4) if pointers[i] in ("@", "@i")]
        nouns[fields[0]] = (fields[4], above, gloss.strip())
    return nouns


def below(kinds, noun):
    found, left = set(), list(kinds[noun])
    while left:
        each = left.pop()
        if each not in found:
            found.add(each)
            left += kinds[each]
    return found


def wordnet(folder):
    nouns = read_nouns(folder / "data.noun")
    kinds = defaultdict(list)
    for number, (_, above, _) in nouns.items():
        for each in above:
            kinds[each].append(number)
    trees = {noun: below(kinds, noun) for noun in nouns if kinds[noun]}
    chosen, used = [], set()
    for noun in sorted((n for n, tree in trees.items() if FEWEST <= len(tree) <= MOST), key=lambda n: -len(trees[n])):
        if len(chosen) < CLASSES and not trees[noun] & used and noun not in used:
            chosen.append(noun)
            used |= trees[noun] | {noun}
    parts = {"train": [], "dev": [], "test": []}
    for noun in chosen:
        listed = sorted(trees[noun])
        random.shuffle(listed)
        for place, each in enumerate(listed[:TAKEN]):
            part = {0: "test", 1: "dev"}.get(place % 6, "train")
            parts[part].append((nouns[each][2].split(";")[0], f"{nouns[noun][0]}_{noun}"))
    return parts


def trec(folder):
    def rows(name):
        lines = (folder / name).read_text(encoding="latin-1").splitlines()
        return [tuple(reversed(line.strip().split(" ", 1))) for line in lines]

    train = rows("train_5500.label")
    random.shuffle(train)
    known = {label for _, label in train}
    tenth = len(train) // 10
    test = [row for row in rows("TREC_10.label") if row[1] in known]
    return {"train": train[tenth:], "dev": train[:tenth], "test": test}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["wordnet", "trec"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    random.seed(0)
    parts = {"wordnet": wordnet, "trec": trec}[arguments.what](arguments.folder)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for part, rows in parts.items():
        with (arguments.out / f"{part}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
        print(f"{part}: {len(rows):,} texts of {len({label for _, label in rows})} classes")


if __name__ == "__main__":
    main()

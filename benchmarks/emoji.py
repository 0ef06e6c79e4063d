"""A folder of small color pictures to classify: emoji of four vendors by category, test emoji never seen in training.

    npm pack emoji-datasource-apple emoji-datasource-facebook emoji-datasource-google emoji-datasource-twitter
    python benchmarks/emoji.py . emoji/         # the four .tgz files -> emoji/train, emoji/val, emoji/test
    torchcaps train emoji/ --size 64

An emoji goes to one part with all its vendors, by a hash of its name: 70, 10 and 20 %.
"""

import argparse
import hashlib
import io
import json
import tarfile
from pathlib import Path

from PIL import Image

VENDORS = ("apple", "facebook", "google", "twitter")


def part(name: str) -> str:
    place = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 100
    return "train" if place < 70 else "val" if place < 80 else "test"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path, help="the folder with the four .tgz files")
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    count = 0
    for vendor in VENDORS:
        [path] = arguments.packages.glob(f"emoji-datasource-{vendor}-*.tgz")
        with tarfile.open(path) as archive:
            for emoji in json.load(archive.extractfile("package/emoji.json")):
                category, name = emoji["category"], emoji["image"]
                if not emoji[f"has_img_{vendor}"] or category == "Component":
                    continue
                content = archive.extractfile(f"package/img/{vendor}/64/{name}").read()
                folder = arguments.out / part(emoji["unified"]) / category
                folder.mkdir(parents=True, exist_ok=True)
                Image.open(io.BytesIO(content)).save(folder / f"{vendor}-{name}")
                count += 1
    print(f"{arguments.out}: {count:,} pictures")


if __name__ == "__main__":
    main()

"""What a build says of the project's public address: a metadata hook of hatchling.

TORCHCAPS_URL=https://host/owner/name (`make release URL=...`) writes the project's urls and makes relative links and
pictures of README.md absolute in the metadata, for index pages. Without it there are no urls, and links stay relative.
A wheel that is built from an sdist has the metadata of the sdist.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "TORCHCAPS_URL"
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\[\]]*)\]\((?!\w+:|#)(?P<target>[^()\s]+)\)")
CODE = re.compile(r"(^```.*?^```$|^    .*?$)", re.MULTILINE | re.DOTALL)


def checked(url: str) -> str:
    """The address without a slash at its end."""
    if url and not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+/?", url):
        raise ValueError(f"{VARIABLE}: expected https://host/owner/name, got {url!r}. Give the project's address.")
    return url.rstrip("/")


def absolute(text: str, url: str) -> str:
    """Markdown with its relative links and pictures at this address; code stays as it is."""

    def replaced(found: re.Match[str]) -> str:
        kind = "raw" if found["picture"] else "blob"
        return f"{found['picture']}[{found['text']}]({url}/{kind}/main/{found['target']})"

    parts = CODE.split(text)  # every second one is code
    return "".join(part if number % 2 else LINK.sub(replaced, part) for number, part in enumerate(parts))


class Address(MetadataHookInterface):
    """Sets `readme` and `urls`, which pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        url = checked(os.environ.get(VARIABLE, ""))
        metadata.setdefault("readme", {"content-type": "text/markdown", "file": "README.md"})  # an sdist's is given
        metadata.setdefault("urls", {})
        if url:
            text = metadata["readme"].get("text") or Path(self.root, "README.md").read_text(encoding="utf-8")
            metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, url)}
            metadata["urls"] = {
                "Source": url,
                "Documentation": f"{url}/tree/main/docs",
                "Changelog": f"{url}/blob/main/CHANGELOG.md",
                "Issues": f"{url}/issues",
            }

"""What a release is made with, as a CycloneDX document: every package of lock.txt, its version, hashes and needs.

python scripts/sbom.py dist    writes dist/torchcaps-VERSION.cdx.json, with the sums of the files beside it
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).parents[1]
OWN = "torchcaps"
ENTRY = re.compile(
    r"^([A-Za-z0-9._-]+)==([^ ;\\]+)(?: *; *([^\\\n]+?))? *\\\n((?:(?: +--hash=| +#).*\n?)+)", re.MULTILINE
)
VIA = re.compile(r"^ +#(?: via)? +([A-Za-z0-9._-]+)", re.MULTILINE)


def normal(name: str) -> str:
    """The one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(text: str) -> dict[str, dict[str, Any]]:
    """By name: version, SHA-256 of every file that may be installed, and which packages wanted it."""
    return {
        normal(name): {
            "version": version,
            "hashes": re.findall(r"--hash=sha256:([0-9a-f]{64})", rest),
            "via": {normal(found) for found in VIA.findall(rest) if found not in ("-c", "via")},
        }
        for name, version, _, rest in ENTRY.findall(text)
    }


def component(name: str, version: str, hashes: list[str], kind: str = "library") -> dict[str, Any]:
    address = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
    listed = [{"alg": "SHA-256", "content": content} for content in hashes]
    return {"type": kind, "bom-ref": address, "name": name, "version": version, "purl": address, "hashes": listed}


def document(project: dict[str, Any], lock: dict[str, dict[str, Any]], files: list[Path]) -> dict[str, Any]:
    """The release with its files as the component, all packages below it; those of the core are required."""
    own = component(OWN, project["version"], [hashlib.sha256(path.read_bytes()).hexdigest() for path in files])
    own |= {"description": project["description"], "licenses": [{"license": {"id": project["license"]}}]}
    parts = {name: component(name, each["version"], each["hashes"]) for name, each in lock.items()}
    needs = {name: sorted(other for other, each in lock.items() if name in each["via"]) for name in [OWN, *lock]}
    left = [normal(re.split(r"[<>=!~;\[ ]", text, maxsplit=1)[0]) for text in project["dependencies"]]
    core: set[str] = set()
    while left:
        name = left.pop()
        if name not in core:
            core.add(name)
            left += needs[name]
    for name, part in parts.items():
        part["scope"] = "required" if name in core else "optional"
    places = {OWN: own["bom-ref"], **{name: part["bom-ref"] for name, part in parts.items()}}
    told = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": list(parts.values()),
        "dependencies": [
            {"ref": places[name], "dependsOn": [places[other] for other in needs[name]]} for name in places
        ],
    }
    number = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(told, sort_keys=True))  # the same release, the same number
    return {**told, "serialNumber": f"urn:uuid:{number}"}


def main(folder: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stem = f"{OWN}-{project['version']}"
    files = sorted(path for path in folder.glob(f"{stem}[-.]*") if path.name.endswith((".whl", ".tar.gz")))
    if len(files) != 2:
        sys.exit(f"sbom: expected an sdist and a wheel in {folder}, got {len(files)} files. Run: make release.")
    told = document(project, read_lock((ROOT / "lock.txt").read_text()), files)
    (folder / f"{stem}.cdx.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))

"""Pages that stand for themselves: one file, nothing from the network, for screens, phones, paper, by day and night."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchcaps._core.files import read_bytes


def page(title: str, body: str) -> str:
    """A whole page with this body of HTML."""
    start, middle, end = re.split("TITLE|BODY", PAGE)
    return start + html.escape(title) + middle + body + end


def heading(text: str, level: int = 2) -> str:
    return f"<h{level}>{html.escape(text)}</h{level}>"


def paragraph(text: str, kind: str = "") -> str:
    return f"<p{f' class={kind!r}' if kind else ''}>{html.escape(text)}</p>"


def table(rows: Sequence[Sequence[object]], head: Sequence[str] = ()) -> str:
    """A table; what looks like a number stands at the right."""
    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    top = f"<thead><tr>{top}</tr></thead>" if head else ""
    return f"<div class='wide'><table>{top}<tbody>{lines}</tbody></table></div>"


def _cell(value: object) -> str:
    text = str(value)
    number = text[:1] in "0123456789+-" and text[:2] != "--"
    return f"<td{' class=number' if number else ''}>{html.escape(text)}</td>"


def listing(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</ul>"


def picture(figure: Any, alt: str) -> str:
    """A matplotlib figure, within the page; where a screen is narrow one scrolls along it."""
    room = io.BytesIO()
    figure.savefig(room, dpi=130, format="png")
    return _image(room.getvalue(), alt, round(float(figure.get_figwidth()) * 96))


def image_file(path: Path, alt: str, width: int = 720) -> str:
    """A picture from a file, within the page."""
    return _image(read_bytes(path), alt, width)


def _image(content: bytes, alt: str, width: int) -> str:
    data = base64.b64encode(content).decode()
    size = f"width: {width}px; min-width: {min(width, 620)}px"
    alt = html.escape(alt, quote=True)
    return f"<div class='wide'><img style='{size}' alt='{alt}' src='data:image/png;base64,{data}'></div>"


def commands(lines: Sequence[str]) -> str:
    return f"<pre>{html.escape(chr(10).join(lines))}</pre>"


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>TITLE</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<style>
:root { --ground: #fff; --ink: #1d2430; --soft: #5b6675; --line: #d9dee6; --card: #f4f6f9; --accent: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14181f; --ink: #e4e8ee; --soft: #9aa6b5; --line: #313a47; --card: #1d232d; --accent: #56b4e9; }
}
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem;
  color: var(--ink); background: var(--ground); overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .4rem 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem;
  padding-top: 1rem; border-top: 1px solid var(--line); } h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
small, .soft { color: var(--soft); font-weight: normal; } p { margin: .5rem 0; max-width: 46rem; }
ul { margin: .5rem 0; padding-left: 1.2rem; max-width: 46rem; }
.wide { overflow-x: auto; margin: .6rem 0; }
img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
table { border-collapse: collapse; font-size: .9rem; } th { text-align: left; color: var(--soft); font-weight: 600; }
td, th { padding: .2rem .9rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td { overflow-wrap: normal; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .6rem; margin: 1rem 0; }
.tiles div { background: var(--card); border-radius: 8px; padding: .6rem .8rem; }
.tiles b { display: block; font-size: 1.25rem; } .tiles span { color: var(--soft); font-size: .85rem; }
pre { background: var(--card); border-radius: 6px; padding: .7rem .9rem; white-space: pre-wrap; font-size: .85rem; }
section { border-top: 1px solid var(--line); padding: .6rem 0 1rem; }
section h2 { border: 0; padding: 0; margin: .3rem 0; }
.words { white-space: pre-wrap; } .words span { border-radius: 3px; padding: 1px 0; color: #111; }
@media print {
  :root { --ground: #fff; --ink: #000; --soft: #444; --line: #bbb; --card: #f2f2f2; }
  body { max-width: none; padding: 0; font-size: 11pt; } img, table, pre { break-inside: avoid; }
  img { min-width: 0 !important; } h2 { break-after: avoid; }
}
</style></head><body>
BODY
</body></html>
"""

"""Self-contained HTML pages: one file without external resources, responsive, printable, with light and dark themes.

jinja2 escapes every text; these functions return HTML.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps._core.files import read_bytes

if TYPE_CHECKING:
    from jinja2 import Environment

PARTS = {
    "heading": "<h{{ level }}>{{ text }}</h{{ level }}>",
    "paragraph": "<p{% if kind %} class='{{ kind }}'{% endif %}>{{ text }}</p>",
    "listing": "<ul>{% for line in lines %}<li>{{ line }}</li>{% endfor %}</ul>",
    "commands": "<pre>{{ lines | join('\n') }}</pre>",
    "image": "<div class='wide'><img style='{{ size }}' alt='{{ alt }}' src='data:image/png;base64,{{ data }}'></div>",
    "table": (
        "<div class='wide'><table>"
        "{% if head %}<thead><tr>{% for name in head %}<th>{{ name }}</th>{% endfor %}</tr></thead>{% endif %}"
        "<tbody>{% for row in rows %}<tr>{% for text, number in row %}"
        "<td{% if number %} class=number{% endif %}>{{ text }}</td>{% endfor %}</tr>{% endfor %}</tbody></table></div>"
    ),
    "tiles": (
        "<div class='tiles'>{% for value, name in rows %}<div><b>{{ value }}</b><span>{{ name }}</span></div>"
        "{% endfor %}</div>"
    ),
    "words": (
        "<h2>{{ label }} <small>{{ confidence }}</small></h2><p class='words'>"
        "{% for text, kind, color, title in pieces %}{% if kind %}<span class='{{ kind }}' title='{{ title }}'"
        "{% if color %} style='background: {{ color }}'{% endif %}>{{ text }}</span>{% else %}{{ text }}{% endif %}"
        "{% endfor %}</p>"
    ),
}


@cache
def _templates() -> Environment:
    from jinja2 import DictLoader, Environment, StrictUndefined

    page = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
    return Environment(loader=DictLoader({**PARTS, "page": page}), autoescape=True, undefined=StrictUndefined)


def render(name: str, **values: Any) -> str:
    """A part of a page by name, as HTML; every value is escaped."""
    return _templates().get_template(name).render(**values)


def page(title: str, body: str) -> str:
    """A whole page with this body of HTML."""
    return render("page", title=title, body=body)


def heading(text: str, level: int = 2) -> str:
    """A heading."""
    return render("heading", text=text, level=level)


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph. kind: its CSS class."""
    return render("paragraph", text=text, kind=kind)


def table(rows: Sequence[Sequence[object]], head: Sequence[str] = ()) -> str:
    """A table; numbers are aligned to the right."""
    return render("table", rows=[[(str(value), _is_number(str(value))) for value in row] for row in rows], head=head)


def _is_number(text: str) -> bool:
    return text[:1] in tuple("0123456789+-") and text[:2] != "--"


def listing(lines: Sequence[str]) -> str:
    """A bulleted list."""
    return render("listing", lines=lines)


def picture(figure: Any, alt: str) -> str:
    """A matplotlib figure, embedded in the page; it scrolls on narrow screens."""
    room = io.BytesIO()
    figure.savefig(room, dpi=130, format="png")
    return _image(room.getvalue(), alt, round(float(figure.get_figwidth()) * 96))


def image_file(path: Path, alt: str, width: int = 720) -> str:
    """A picture from a file, embedded in the page."""
    return _image(read_bytes(path), alt, width)


def _image(content: bytes, alt: str, width: int) -> str:
    size = f"width: {width}px; min-width: {min(width, 620)}px"
    return render("image", size=size, alt=alt, data=base64.b64encode(content).decode())


def commands(lines: Sequence[str]) -> str:
    """Preformatted lines."""
    return render("commands", lines=lines)


def tiles(rows: Sequence[tuple[str, str]]) -> str:
    """Large values, each with its name below."""
    return render("tiles", rows=rows)


def shaded_text(label: str, confidence: str, pieces: Sequence[tuple[str, str, str, str]]) -> str:
    """A text in pieces below its class. Each has a CSS class, a background color and a title, or none of them."""
    return render("words", label=label, confidence=confidence, pieces=pieces)

"""Writes text and tables of Markdown, whatever somebody sent."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Found = Mapping[str, Any]  # by a step
LONGEST_TEXT = 300
MARKS = re.compile(r"[\\`*|\[\]]")


def table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(name.replace("_", " ") for name in heading) + " |"
    yield "|" + "---|" * len(heading)
    for row in rows:
        yield "| " + " | ".join(_cell(value) for value in row) + " |"
    yield ""


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def plain_text(text: str) -> str:
    """Returns text that is neither markup nor the end of a cell or line, whatever somebody sent."""
    text = html.escape(" ".join(text.split())[:LONGEST_TEXT], quote=False)
    return MARKS.sub(lambda mark: f"&#{ord(mark[0])};", text)

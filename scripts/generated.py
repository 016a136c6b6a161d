"""The common part of the scripts that generate pages and files from the code."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def write_or_check(made: Mapping[Path, str]) -> int:
    """Writes the files that differ; with --check in the arguments names them instead, and returns 1."""
    drifted = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in drifted:
            print(f"{path.relative_to(ROOT)} has drifted from the code; run: make openapi", file=sys.stderr)
        return 1 if drifted else 0
    for path in drifted:
        path.parent.mkdir(exist_ok=True)
        path.write_text(made[path])
    return 0


def table(heading: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yields the lines of a Markdown table."""
    heading = list(heading)
    yield "| " + " | ".join(heading) + " |"
    yield "|" + "---|" * len(heading)
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
    yield ""

"""Text for people and scripts: safe names, tables, ages, colour on terminals only, JSON and YAML."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TextIO

COLOURS = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}
MOST_NAMED = 3  # in a sentence


def plain(value: object) -> str:
    """`value` as one line that cannot steer a terminal: control and direction characters are escaped."""
    text = value if isinstance(value, str) else str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shows_colours(stream: TextIO) -> bool:
    """Returns True if `stream` is a terminal that should show colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def colour(text: str, name: str, stream: TextIO | None = None) -> str:
    """`text` in a colour, if the stream (stdout) shows colours."""
    return f"\x1b[{COLOURS[name]}m{text}\x1b[0m" if shows_colours(stream or sys.stdout) else text


class TableText(NamedTuple):
    """A whole table in words: its headings, and its rows with as many cells."""

    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def show(self) -> None:
        """Prints it."""
        OutputTable(self.headings).rows(self.rows)


class OutputTable:
    """Columns that line up, printed as rows come; later rows may widen a column."""

    def __init__(self, headers: Sequence[str], *, heading: bool = True) -> None:
        self._headers = headers
        self._widths = [width(header) for header in headers]
        self._heading = heading

    def rows(self, rows: Iterable[Sequence[object]]) -> None:
        """Print these rows, below the heading if they are the first."""
        texts = [[plain(cell) or "-" for cell in row] for row in rows]
        for row in texts:
            self._widths = [max(wide, width(cell)) for wide, cell in zip(self._widths, row, strict=True)]
        if self._heading and texts:
            print(self._line(self._headers))
            self._heading = False
        for row in texts:
            print(self._line(row))

    def _line(self, cells: Sequence[str]) -> str:
        padded = (cell + " " * (wide - width(cell)) for cell, wide in zip(cells, self._widths, strict=True))
        return "   ".join(padded).rstrip()


def width(text: str) -> int:
    """Returns the number of terminal cells that `text` takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def format_json(value: Any) -> str:
    """Indented JSON, in ASCII: what a name contains never reaches the terminal raw."""
    import json

    return json.dumps(value, indent=2, ensure_ascii=True)


def format_yaml(value: Any) -> str:
    """YAML in the order given, in ASCII."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=False, width=110)
    return str(text).rstrip("\n")


def print_data(value: Any, output: str) -> bool:
    """Prints the value as JSON or YAML if that is the output; returns False for any other."""
    if output not in ("json", "yaml"):
        return False
    print(format_json(value) if output == "json" else format_yaml(value))
    return True


def seconds_since(moment: str, now: float | None = None) -> float | None:
    """Seconds from an RFC 3339 moment to now; None if it is no moment."""
    try:
        then = datetime.fromisoformat(moment)
    except (TypeError, ValueError):
        return None
    return (time.time() if now is None else now) - then.timestamp()


def age(moment: str, now: float | None = None) -> str:
    """`42s`, `5m`, `3h`, `12d`, `2y` since an RFC 3339 moment."""
    seconds = seconds_since(moment, now)
    return "-" if seconds is None else span(seconds)


def shorten(text: str, most: int) -> str:
    """Returns the text, cut to so many characters with `...` at the end."""
    return text if len(text) <= most else f"{text[: most - 3].rstrip()}..."


def ahead(moment: str) -> str:
    """`in 9m`, or that it has passed."""
    seconds = seconds_since(moment)
    return moment if seconds is None else f"in {span(-seconds)}" if seconds < 0 else f"{span(seconds)} ago"


def name_subject(event: Mapping[str, Any]) -> str:
    """Formats the object of an event, like `service shop/search`."""
    name = "/".join(part for part in (event.get("tenant"), event.get("name")) if part)
    return " ".join(part for part in ((event.get("kind") or "").lower(), name) if part)


def spell_copies(planned: int, routed: int, silent: int) -> str:
    """Says how many copies answer of those planned, and how many did when their nodes, now silent, last reported."""
    answering = f"{routed} of {planned}" if routed <= planned else f"{routed}, {planned or 'none'} planned"
    return f"{answering}, {silent} on silent nodes" if silent else answering


def span(seconds: float) -> str:
    """Formats a length of time in its largest unit, two of them while they still matter: `3h20m`, `2d4h`."""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 120:
        return f"{minutes}m"
    if hours < 10:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d" if days < 730 else f"{days // 365}y"


def number(value: object) -> str:
    """Formats a number without a tail of zeros, grouped by thousands from 10,000 on."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.1f}"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.0f}"


def gib(value: object) -> str:
    """Memory given in GiB."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if value >= 1024 and value % 1024 == 0:
        return f"{value / 1024:g} TiB"
    return f"{value:g} GiB"


def name_some(names: Sequence[str]) -> str:
    """Returns the first names, and how many more there are."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def labels(given: Mapping[str, str] | None) -> str:
    """`team=search,tier=gold`."""
    return ",".join(f"{key}={value}" for key, value in (given or {}).items())


def say(line: str) -> None:
    """Prints a remark on stderr, so that stdout holds the result alone; nothing where stderr is closed."""
    if sys.stderr is not None:
        print(plain(line), file=sys.stderr)

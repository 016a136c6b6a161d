"""What a query answers, in the words that the documentation shows it in."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg


def answer(url: str, query: str) -> str:
    """The rows as a small table: names, a line, a row a line."""
    with psycopg.connect(url) as connection:
        connection.execute("SET LOCAL TimeZone = 'UTC'")
        cursor = connection.execute(query.encode())
        while cursor.nextset():
            pass
        assert cursor.description is not None
        rows = [[said(value) for value in row] for row in cursor]
        names = [column.name for column in cursor.description]
    widths = [max(len(cell) for cell in column) for column in zip(names, *rows, strict=True)]
    lines = [names, ["-" * width for width in widths], *rows]
    return "\n".join(
        " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def said(value: Any) -> str:
    """One value, without digits that say nothing."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}".rstrip("0").rstrip(".") if "." in f"{value:f}" else f"{value:f}"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)

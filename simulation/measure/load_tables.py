"""Reads tables of a load from CSV: every fault with its line and what is allowed."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from io import StringIO

MOST_FAULTS = 20
MOST_NAMES = 10
MOST_SECONDS = 1e9


class LoadRefused(Exception):
    """The text does not give a load; `faults` name each place, what is there, and what is allowed."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = tuple(faults)


def read_table(
    text: str,
    source: str,
    columns: tuple[str, ...],
    optional: tuple[str, ...],
    take: Callable[[Mapping[str, str]], str],
) -> None:
    """Hands each row to `take`, which returns its fault or nothing. Raises LoadRefused with up to 20 faults."""
    faults: list[str] = []
    is_empty = True
    try:
        for line, row in _rows(text, source, columns, optional):
            is_empty = False
            if None in row or None in row.values():
                fault = f"the row has another number of fields than the header, which has {len(row) - (None in row)}"
            else:
                fault = take(row)  # type: ignore[arg-type]
            if fault:
                faults.append(f"{source}:{line}: {fault}")
                if len(faults) >= MOST_FAULTS:
                    break
    except csv.Error as error:
        faults.append(f"{source}: {error}")
    if not faults and is_empty:
        faults.append(f"{source} has no row below its header; give at least one: {','.join(columns)}")
    if faults:
        raise LoadRefused(faults)


def unknown_service(name: str, services: Collection[str]) -> str:
    """Returns the fault of a name that is not declared."""
    found = sorted(services)
    more = len(found) - MOST_NAMES
    listed = ", ".join(found[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    return f"service {name!r} is not declared in the manifests; declared: {listed}"


def number_to(text: str, most: float) -> float | None:
    """Returns a number from 0 to the most; None if the text is no such number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= most else None


def _rows(
    text: str, source: str, columns: tuple[str, ...], optional: tuple[str, ...]
) -> Iterator[tuple[int, dict[str, str | None]]]:
    """Yields each row with its line. Raises LoadRefused if the header lacks a column, or has another or one twice."""
    reader = csv.DictReader(StringIO(text.removeprefix("\ufeff")), strict=True, skipinitialspace=True)
    header = [name.strip() for name in reader.fieldnames or ()]
    more = f", and may have {','.join(optional)}" if optional else ""
    allowed = f"the header must have the columns {','.join(columns)}, each once{more}"
    missing = [name for name in columns if name not in header]
    if missing:
        raise LoadRefused([f"{source}:1: no column {', '.join(missing)}; {allowed}"])
    known = (*columns, *optional)
    strange = [name for place, name in enumerate(header) if name not in known or name in header[:place]]
    if strange:
        raise LoadRefused([f"{source}:1: column {strange[0]!r} is not expected there; {allowed}"])
    reader.fieldnames = header
    for row in reader:
        yield reader.line_num, row

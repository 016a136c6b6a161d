"""Reads tables of a load from CSV: every fault with its line and what is allowed."""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Mapping, Sequence
from io import StringIO

from app.manifests.numbers import finite_number

MOST_FAULTS = 20
MOST_NAMES = 10
LONGEST_SHOWN = 60  # characters of a value
MOST_SECONDS = 1e9  # from the start of the run; seconds since 1970 are more


class LoadRefused(Exception):
    """The text does not state a load; `faults` name each place, what is there, and what is allowed.

    `may_have_more` is true if reading stopped at the most faults that are named.
    """

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = tuple(faults)
        self.may_have_more = len(faults) >= MOST_FAULTS


def read_table(
    text: str,
    source: str,
    columns: tuple[str, ...],
    optional: tuple[str, ...],
    take: Callable[[Mapping[str, str]], str],
) -> None:
    """Hands each row to `take`, which returns its fault or nothing. Raises LoadRefused with up to 20 faults."""
    lines = StringIO(text.removeprefix("\ufeff"), newline=None)  # a line may end as on any system
    reader = csv.DictReader(lines, strict=True, skipinitialspace=True)
    faults: list[str] = []
    is_empty = True
    try:
        reader.fieldnames = _check_header(reader.fieldnames or (), source, columns, optional)
        for row in reader:
            is_empty = False
            if None in row or None in row.values():
                fault = f"the row has another number of fields than the header, which has {len(row) - (None in row)}"
            else:
                fault = take(row)
            if fault:
                faults.append(f"{source}:{reader.line_num}: {fault}")
                if len(faults) >= MOST_FAULTS:
                    break
    except csv.Error as error:
        allowed = "fields have commas between them, and each quote that is opened is closed"
        faults.append(f"{source}:{reader.line_num + 1}: the row cannot be read: {error}; {allowed}")
    if not faults and is_empty:
        faults.append(f"{source} has no row below its header; give at least one: {','.join(columns)}")
    if faults:
        raise LoadRefused(faults)


def unknown_service_fault(name: str, services: Collection[str]) -> str:
    """Returns the fault of a name that is not declared."""
    declared = sorted(services)
    more = len(declared) - MOST_NAMES
    listed = ", ".join(declared[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    return f"service {_shorten(name)} is not declared in the manifests; declared: {listed}"


def parse_number(text: str, most: float) -> float | None:
    """Returns the number from 0 to `most` that the text states, else None."""
    value = finite_number(text)
    return value if value is not None and 0 <= value <= most else None


def number_fault(column: str, text: str, most: str) -> str:
    """Returns the fault of a text that is not a number from 0 to `most`."""
    return f"{column} {_shorten(text)} is not allowed: a number from 0 to {most}"


def count_fault(column: str, text: str, most: str) -> str:
    """Returns the fault of a text that is not a whole number from 1 to `most`."""
    return f"{column} {_shorten(text)} is not allowed: a whole number from 1 to {most}, or nothing"


def _shorten(text: str) -> str:
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}...")


def _check_header(
    given: Sequence[str], source: str, columns: tuple[str, ...], optional: tuple[str, ...]
) -> list[str]:  # fmt: skip
    """Returns the header's columns. Raises LoadRefused if it lacks one, or has another or one twice."""
    header = [name.strip() for name in given]
    more = f", and may have {','.join(optional)}" if optional else ""
    allowed = f"the header must have the columns {','.join(columns)}, each once{more}"
    missing = [name for name in columns if name not in header]
    if missing:
        raise LoadRefused([f"{source}:1: no column {', '.join(missing)}; {allowed}"])
    known = (*columns, *optional)
    strange = [name for place, name in enumerate(header) if name not in known or name in header[:place]]
    if strange:
        raise LoadRefused([f"{source}:1: column {_shorten(strange[0])} is not expected there; {allowed}"])
    return header

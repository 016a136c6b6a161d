"""Rows as a Parquet file; money stays decimal, with nine places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agents.contract.installs import say_install
from cli.exits import Failed

PLACES = 9  # of a price's smallest part
DIGITS = 38


def write(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """One column a name; numbers are decimals, moments and names are text."""
    if find_spec("pyarrow") is None:
        raise Failed(f"-o parquet needs pyarrow, which is not installed: {say_install('parquet')}")
    import pyarrow
    from pyarrow import parquet

    columns: dict[str, Any] = {}
    for name in rows[0] if rows else ():
        cells = [row[name] for row in rows]
        if any(isinstance(cell, Decimal | int) for cell in cells):
            exact = [None if cell is None else Decimal(cell).quantize(Decimal(1).scaleb(-PLACES)) for cell in cells]
            columns[name] = pyarrow.array(exact, pyarrow.decimal128(DIGITS, PLACES))
        else:
            columns[name] = pyarrow.array(cells, pyarrow.string())
    parquet.write_table(pyarrow.table(columns), file)

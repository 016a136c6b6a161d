"""Reads CSV files of public data by the names of their columns."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from lab.data.missing_data import DataMissing


def read_rows(file: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Returns the rows of a file; DataMissing names the file or the first of these columns if it is not there."""
    if not file.is_file():
        raise DataMissing(f"{file} is missing; --data names a folder with it")
    with file.open(newline="") as text:
        reader = csv.DictReader(text)
        missing = [name for name in columns if name not in (reader.fieldnames or ())]
        if missing:
            raise DataMissing(f"{file} has no column {missing[0]}; it needs {', '.join(columns)}")
        return list(reader)

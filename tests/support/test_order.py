"""The longest test files begin first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from tests.support.order import LONGEST, ROOT, put_longest_first


@dataclass(frozen=True, slots=True)
class Found:
    """A collected test, of which the order reads the path alone."""

    path: Path
    name: str


def test_every_file_that_goes_first_exists() -> None:
    assert [name for name in LONGEST if not (ROOT / name).is_file()] == []


def test_the_longest_go_first_and_tests_of_a_file_keep_their_order() -> None:
    files = ["tests/test_house.py", LONGEST[1], LONGEST[0]]
    items = [Found(ROOT / file, name) for file in files for name in ("b", "a")]
    put_longest_first(cast("list[pytest.Item]", items))
    assert [(item.path.name, item.name) for item in items] == [
        (Path(file).name, name) for file in (LONGEST[0], LONGEST[1], "test_house.py") for name in ("b", "a")
    ]

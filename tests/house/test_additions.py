"""The rooms of an addition are those whose code names it."""

from __future__ import annotations

from pathlib import Path

from scripts.additions import ADDITIONS, find_files
from scripts.house.tree import Tree


def test_code_and_templates_that_name_a_thing_are_found_and_words_about_it_are_not(tmp_path: Path) -> None:
    written = {
        "app/prices.py": "CARBON = read('carbon')",
        "app/told.py": '"""Nothing of carbon."""\n\nRATE = 1  # not carbon',
        "app/pages/bill.html": "{{ carbon }}",
        "solvers/carbon/__init__.py": '"""The price of carbon."""',
        "tests/test_prices.py": "assert carbon",
    }
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(find_files(Tree(tmp_path), "carbon")) == ["app/prices.py", "app/pages/bill.html"]


def test_each_example_is_still_in_the_product() -> None:
    tree = Tree()
    assert all(next(find_files(tree, addition.pattern), "") for addition in ADDITIONS)

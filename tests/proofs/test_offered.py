"""What is tried in each image finds a library that the image lacks, also where only a call would import it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proofs import images, offered

LAZY = """
from __future__ import annotations
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import never_installed_types

def call() -> None:
    import json
    import never_installed.part
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = tmp_path / "offers_something"
    (folder / "inner").mkdir(parents=True)
    for name, text in (("__init__", ""), ("inner/__init__", ""), ("inner/lazy", LAZY), ("whole", "import json\n")):
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield folder.name
    for module in [name for name in sys.modules if name.startswith(folder.name)]:
        del sys.modules[module]


def test_a_library_that_only_a_call_imports_is_missed_and_named(package: str) -> None:
    tried, (fault,) = offered.try_imports([package])
    assert fault.endswith("inner/lazy.py imports never_installed.part: No module named 'never_installed'")
    assert tried == "4 modules imported, and 4 libraries that they name"
    assert offered.try_imports([package, f"-{package}.inner"]) == (
        "2 modules imported, and 1 libraries that they name",
        [],
    )
    assert offered.try_imports([f"{package}.whole"]) == ("1 modules imported, and 1 libraries that they name", [])


def test_what_the_images_leave_out_exists() -> None:
    for image, names in images.MODULES.items():
        for name in names:
            assert list(offered.find_modules(name.removeprefix("-"))), f"{image}: {name}"


def test_mudi_chooses_a_batch_by_all_its_trials() -> None:
    assert offered.try_trials() == ("24 trials of mudi, batch 30", [])

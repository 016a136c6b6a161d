"""Compiled loops: kept on disk, read when called, compiled again when anything they are made of was touched."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest

from solvers import compiled

LOOPS = """
from solvers.compiled import njit


@njit("int64(int64)")
def twice(number):
    return 2 * number


@njit("int64(int64)")
def four_times(number):
    return twice(twice(number))
"""


folders: set[Path] = set()  # where the loops of the test are kept


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "loops.py"
    path.write_text(LOOPS)
    yield path
    for folder in folders:
        shutil.rmtree(folder)
    folders.clear()


def imported(file: Path) -> ModuleType:
    """As by a process of its own, with nothing known of the file."""
    compiled.digest.cache_clear()
    compiled._kept.cache_clear()
    folders.add(compiled._folder() / compiled.digest(file))
    spec = util.spec_from_file_location("loops", file)
    assert spec
    assert spec.loader
    module = util.module_from_spec(spec)
    sys.modules["loops"] = module
    spec.loader.exec_module(module)
    del sys.modules["loops"]
    return module


def test_a_new_loop_is_compiled_when_imported_and_a_kept_one_read_when_called(file: Path) -> None:
    first = imported(file)
    assert first.twice.signatures
    assert first.four_times.signatures
    kept = imported(file)
    assert not kept.four_times.signatures
    assert kept.four_times(3) == 12
    assert kept.four_times.stats.cache_hits
    assert not kept.twice.signatures  # four_times holds what it needs of it
    compiled.read_all()
    assert kept.twice.stats.cache_hits
    assert kept.twice(3) == 6


def test_nothing_but_the_signature_is_compiled(file: Path) -> None:
    imported(file)
    loop = imported(file).twice
    with pytest.raises(TypeError):
        loop("two")
    assert len(loop.signatures) == 1


def test_a_loop_compiled_anew_uses_a_kept_one(file: Path) -> None:
    imported(file)
    for kept in next(iter(folders)).rglob("*four_times*"):
        kept.unlink()
    half = imported(file)
    assert half.four_times.stats.cache_misses
    assert half.twice.stats.cache_hits
    assert half.four_times(3) == 12


def test_a_touched_file_is_compiled_when_imported(file: Path) -> None:
    imported(file)
    os.utime(file, ns=(0, 0))
    again = imported(file)
    assert again.twice.stats.cache_misses
    assert again.four_times(3) == 12

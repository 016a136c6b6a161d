"""Fixtures: loops of a test's own, and a cache for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from solvers import compiled, loop_cache
from tests.solvers.loops import LOOPS


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Returns a cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compiled, "WAITING", [])
    loop_cache.cache_folder.cache_clear()
    yield tmp_path / "cache" / "gpuwright" / "compiled"
    loop_cache.cache_folder.cache_clear()


@pytest.fixture
def file(tmp_path: Path, cache: Path) -> Path:
    path = tmp_path / "loops.py"
    path.write_text(LOOPS)
    return path

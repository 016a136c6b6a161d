"""The cache of compiled loops: only whole files, only our own, and not too many."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from solvers import compiled, loop_cache
from tests.solvers.loops import entry, imported, read


@pytest.mark.parametrize("damage", [b"", b"half", bytes(4096)])
def test_a_damaged_entry_is_compiled_again(file: Path, cache: Path, damage: bytes) -> None:
    read(file)
    entry(cache, "four_times").write_bytes(damage)
    reread = read(file)
    assert reread.four_times(3) == 12
    assert reread.four_times.stats.cache_misses
    assert read(file).four_times(3) == 12


@pytest.mark.slow
def test_a_flipped_bit_and_a_lost_end_are_compiled_again(file: Path, cache: Path) -> None:
    read(file)
    path = entry(cache, "twice")
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:]):
        path.write_bytes(content)
        reread = read(file)
        assert reread.twice(3) == 6
        assert reread.twice.stats.cache_misses
        assert len(path.read_bytes()) > 2000


def test_a_loop_under_the_name_of_another_is_compiled_again(file: Path, cache: Path) -> None:
    read(file)
    entry(cache, "twice").write_bytes(entry(cache, "four_times").read_bytes())
    reread = read(file)
    assert reread.twice(3) == 6
    assert reread.twice.stats.cache_misses


@pytest.mark.slow
def test_a_file_that_others_own_or_may_write_is_not_read(file: Path, cache: Path) -> None:
    read(file)
    entry(cache, "twice").chmod(0o620)
    assert read(file).twice.stats.cache_misses
    if os.geteuid() == 0:
        os.chown(entry(cache, "twice"), 65534, -1)
        assert read(file).twice.stats.cache_misses
    assert stat.S_IMODE(entry(cache, "twice").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o777])
def test_a_folder_that_others_may_write_is_not_used(cache: Path, mode: int) -> None:
    cache.mkdir(parents=True)
    cache.chmod(mode)
    assert loop_cache.cache_folder() != cache


def test_the_folder_is_made_for_its_owner_alone(cache: Path) -> None:
    assert loop_cache.cache_folder() == cache
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


@pytest.mark.usefixtures("cache")
def test_without_a_home_loops_are_cached_next_to_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fallback = Path(loop_cache.__file__).parent / "__pycache__" / "compiled"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "nonexistent"))
    assert loop_cache.cache_folder() == fallback
    assert not (tmp_path / "nonexistent").exists()


@pytest.mark.slow
def test_loops_work_where_no_cache_can_be_written(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_cache, "_can_be_used", lambda folder: False)
    assert read(file).four_times(3) == 12
    assert read(file).four_times.stats.cache_misses


def test_a_full_disk_leaves_no_half_entry(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert read(file).four_times(3) == 12
    assert not list(cache.iterdir())


@pytest.mark.slow
def test_two_processes_that_compile_at_once_leave_whole_entries(file: Path, cache: Path) -> None:
    program = "import loops; assert loops.four_times(3) == 12"
    environment = os.environ | {"PYTHONPATH": f"{file.parent}:{Path(compiled.__file__).parent.parent}"}
    both = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert sorted(path.name.partition("-")[0] for path in cache.iterdir()) == ["loops.four_times", "loops.twice"]
    assert imported(file).four_times(3) == 12


def test_the_oldest_files_are_removed_when_there_are_too_many(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir(parents=True)
    for age, name in enumerate(("new", "old", "older")):
        (cache / name).write_bytes(bytes(100))
        os.utime(cache / name, (time.time() - age * 60,) * 2)
    monkeypatch.setattr(loop_cache, "MOST_BYTES", 250)
    loop_cache.prune(cache)
    assert sorted(path.name for path in cache.iterdir()) == ["new", "old"]


def test_files_not_read_for_long_are_removed_and_reading_is_noted(file: Path, cache: Path) -> None:
    read(file)
    long_ago = time.time() - loop_cache.MOST_SECONDS - 60
    for name in ("twice", "four_times"):
        os.utime(entry(cache, name), (long_ago, long_ago))
    assert imported(file).four_times(3) == 12
    loop_cache.prune(cache)
    assert [path.name.partition("-")[0] for path in cache.iterdir()] == ["loops.four_times"]

"""Compiled loops: kept on disk by content, read when called, compiled again when anything they are made of changed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest

from solvers import compiled, loop_cache

LOOPS = """
from solvers.compiled import njit

FACTOR = 2


@njit("int64(int64)")
def twice(number):
    return FACTOR * number


@njit("int64(int64)")
def four_times(number):
    return twice(twice(number))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    loop_cache.cache_folder.cache_clear()
    yield tmp_path / "cache" / "gpuwright" / "compiled"
    loop_cache.cache_folder.cache_clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "loops.py"
    path.write_text(LOOPS)
    return path


def imported(file: Path) -> ModuleType:
    """As by a process of its own, with nothing known of the file."""
    spec = util.spec_from_file_location("loops", file)
    assert spec
    assert spec.loader
    module = util.module_from_spec(spec)
    sys.modules["loops"] = module
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    spec.loader.exec_module(module)
    sys.dont_write_bytecode = before
    del sys.modules["loops"]
    return module


def changed(file: Path, before: str, after: str) -> ModuleType:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))
    return imported(file)


def entry(cache: Path, name: str) -> Path:
    (path,) = cache.glob(f"loops.{name}-*")
    return path


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


def test_a_loop_compiled_anew_uses_a_kept_one(file: Path, cache: Path) -> None:
    imported(file)
    entry(cache, "four_times").unlink()
    half = imported(file)
    assert half.four_times.stats.cache_misses
    assert half.twice.stats.cache_hits
    assert half.four_times(3) == 12


def test_a_touched_file_is_not_compiled_again(file: Path) -> None:
    imported(file)
    os.utime(file, ns=(0, 0))
    assert not imported(file).twice.signatures


def test_a_clone_in_another_folder_finds_what_was_compiled(file: Path, tmp_path: Path) -> None:
    imported(file)
    (tmp_path / "clone").mkdir()
    clone = imported(file.rename(tmp_path / "clone" / "loops.py"))
    assert not clone.four_times.signatures
    assert clone.four_times(3) == 12


def test_a_comment_a_docstring_and_a_moved_line_compile_nothing(file: Path) -> None:
    imported(file)
    again = changed(file, "    return FACTOR", '    """Doubles."""\n    # by the factor\n    return FACTOR')
    assert not again.twice.signatures
    assert not again.four_times.signatures
    assert again.four_times(3) == 12


def test_a_changed_loop_is_compiled_with_all_that_call_it(file: Path) -> None:
    imported(file)
    again = changed(file, "FACTOR * number", "FACTOR * number + 1")
    assert again.twice.stats.cache_misses
    assert again.four_times.stats.cache_misses
    assert again.four_times(3) == 15


def test_a_changed_constant_compiles_what_reads_it(file: Path) -> None:
    imported(file)
    again = changed(file, "FACTOR = 2", "FACTOR = 3")
    assert again.four_times.stats.cache_misses
    assert again.four_times(3) == 27


def test_a_changed_caller_leaves_alone_what_it_calls(file: Path) -> None:
    imported(file)
    again = changed(file, "twice(twice(number))", "twice(twice(number)) + 1")
    assert again.four_times.stats.cache_misses
    assert again.twice.stats.cache_hits


def test_another_signature_is_another_loop(file: Path) -> None:
    imported(file)
    again = changed(file, "int64(int64)", "float64(float64)")
    assert again.twice.stats.cache_misses
    assert again.four_times(0.5) == 2.0


def test_a_loop_that_reads_names_through_a_module_of_ours_is_refused(file: Path) -> None:
    with pytest.raises(TypeError, match=r"imports names from solvers\.latency"):
        changed(file, "FACTOR = 2", "import solvers.latency as FACTOR")


@pytest.mark.parametrize("damage", [b"", b"half", bytes(4096)])
def test_a_damaged_entry_is_compiled_again(file: Path, cache: Path, damage: bytes) -> None:
    imported(file)
    entry(cache, "four_times").write_bytes(damage)
    again = imported(file)
    assert again.four_times(3) == 12
    assert again.four_times.stats.cache_misses
    assert imported(file).four_times(3) == 12


def test_a_flipped_bit_and_a_lost_end_are_compiled_again(file: Path, cache: Path) -> None:
    imported(file)
    path = entry(cache, "twice")
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:]):
        path.write_bytes(content)
        again = imported(file)
        assert again.twice(3) == 6
        assert again.twice.stats.cache_misses
        assert path.read_bytes()[32:] == whole[32:] or again.twice.signatures


def test_a_loop_under_the_name_of_another_is_compiled_again(file: Path, cache: Path) -> None:
    imported(file)
    entry(cache, "twice").write_bytes(entry(cache, "four_times").read_bytes())
    again = imported(file)
    assert again.twice(3) == 6
    assert again.twice.stats.cache_misses


def test_what_others_may_write_or_own_is_not_read(file: Path, cache: Path) -> None:
    imported(file)
    entry(cache, "twice").chmod(0o620)
    assert imported(file).twice.stats.cache_misses
    if os.geteuid() == 0:
        os.chown(entry(cache, "twice"), 65534, -1)
        assert imported(file).twice.stats.cache_misses
    assert stat.S_IMODE(entry(cache, "twice").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o777])
def test_a_folder_that_others_may_write_is_not_used(cache: Path, mode: int) -> None:
    cache.mkdir(parents=True)
    cache.chmod(mode)
    assert loop_cache.cache_folder() != cache


def test_the_folder_is_made_for_its_owner_alone(cache: Path) -> None:
    assert loop_cache.cache_folder() == cache
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_without_a_home_loops_are_kept_beside_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = Path(loop_cache.__file__).parent / "__pycache__" / "compiled"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "nonexistent"))
    assert loop_cache.cache_folder() == beside
    assert not (tmp_path / "nonexistent").exists()


def test_where_nothing_can_be_kept_loops_work_all_the_same(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_cache, "_can_be_used", lambda folder: False)
    assert imported(file).four_times(3) == 12
    assert imported(file).four_times.stats.cache_misses


def test_a_full_disk_leaves_no_half_entry(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert imported(file).four_times(3) == 12
    assert not list(cache.iterdir())


def test_two_processes_that_compile_at_once_leave_whole_entries(file: Path, cache: Path) -> None:
    program = "import loops; assert loops.four_times(3) == 12"
    environment = os.environ | {"PYTHONPATH": f"{file.parent}:{Path(compiled.__file__).parent.parent}"}
    both = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert sorted(path.name.partition("-")[0] for path in cache.iterdir()) == ["loops.four_times", "loops.twice"]
    assert imported(file).four_times(3) == 12


def test_the_oldest_go_when_there_are_too_many(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir(parents=True)
    for age, name in enumerate(("new", "old", "older")):
        (cache / name).write_bytes(bytes(100))
        os.utime(cache / name, (time.time() - age * 60,) * 2)
    monkeypatch.setattr(loop_cache, "MOST_BYTES", 250)
    loop_cache.prune(cache)
    assert sorted(path.name for path in cache.iterdir()) == ["new", "old"]


def test_what_was_not_read_for_long_goes_and_reading_is_noted(file: Path, cache: Path) -> None:
    imported(file)
    long_ago = time.time() - loop_cache.MOST_SECONDS - 60
    for name in ("twice", "four_times"):
        os.utime(entry(cache, name), (long_ago, long_ago))
    assert imported(file).four_times(3) == 12
    loop_cache.prune(cache)
    assert [path.name.partition("-")[0] for path in cache.iterdir()] == ["loops.four_times"]


def test_compiling_is_announced_once_and_reading_is_not(file: Path) -> None:
    announced: list[str] = []
    compiled.before_compiling(lambda: announced.append("compiling"))
    imported(file)
    assert announced == ["compiling"]
    compiled.before_compiling(lambda: announced.append("again"))
    imported(file)
    assert announced == ["compiling"]
    compiled.BEFORE_COMPILING.clear()

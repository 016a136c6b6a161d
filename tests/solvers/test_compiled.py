"""Compiled loops are loaded or compiled when called, and compiled again when anything they are made of changed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from solvers import compiled, loop_cache
from tests.solvers.loops import LOOPS, changed, entry, imported, read


@pytest.mark.slow
def test_a_new_loop_is_compiled_when_called_and_a_cached_one_is_loaded(file: Path) -> None:
    first = imported(file)
    assert not first.four_times.signatures
    assert first.four_times(3) == 12
    assert first.four_times.stats.cache_misses
    assert first.twice.stats.cache_misses
    kept = imported(file)
    assert not kept.four_times.signatures
    assert kept.four_times(3) == 12
    assert kept.four_times.stats.cache_hits
    assert not kept.twice.signatures  # four_times contains the code of twice
    compiled.read_all()
    assert kept.twice.stats.cache_hits
    assert kept.twice(3) == 6


def test_only_the_signature_is_compiled(file: Path) -> None:
    read(file)
    loop = read(file).twice
    with pytest.raises(TypeError):
        loop("two")
    assert len(loop.signatures) == 1


def test_a_recompiled_loop_uses_a_cached_one(file: Path, cache: Path) -> None:
    read(file)
    entry(cache, "four_times").unlink()
    half = read(file)
    assert half.four_times.stats.cache_misses
    assert half.twice.stats.cache_hits
    assert half.four_times(3) == 12


def test_a_touched_file_is_not_compiled_again(file: Path) -> None:
    read(file)
    os.utime(file, ns=(0, 0))
    assert read(file).twice.stats.cache_hits


def test_a_clone_in_another_folder_finds_the_compiled_loops(file: Path, tmp_path: Path) -> None:
    read(file)
    (tmp_path / "clone").mkdir()
    clone = read(file.rename(tmp_path / "clone" / "loops.py"))
    assert clone.four_times.stats.cache_hits
    assert clone.four_times(3) == 12


def test_a_comment_a_docstring_and_a_moved_line_compile_nothing(file: Path) -> None:
    read(file)
    reread = changed(file, "    return FACTOR", '    """Doubles."""\n    # by the factor\n    return FACTOR')
    assert reread.twice.stats.cache_hits
    assert reread.four_times.stats.cache_hits
    assert reread.four_times(3) == 12


@pytest.mark.slow
def test_a_changed_loop_is_compiled_with_all_its_callers(file: Path) -> None:
    read(file)
    reread = changed(file, "FACTOR * number", "FACTOR * number + 1")
    assert reread.twice.stats.cache_misses
    assert reread.four_times.stats.cache_misses
    assert reread.four_times(3) == 15


@pytest.mark.slow
def test_a_changed_constant_recompiles_the_loops_that_read_it(file: Path) -> None:
    read(file)
    reread = changed(file, "FACTOR = 2", "FACTOR = 3")
    assert reread.four_times.stats.cache_misses
    assert reread.four_times(3) == 27


def test_a_changed_caller_does_not_recompile_the_loop_it_calls(file: Path) -> None:
    read(file)
    reread = changed(file, "twice(twice(number))", "twice(twice(number)) + 1")
    assert reread.four_times.stats.cache_misses
    assert reread.twice.stats.cache_hits


@pytest.mark.slow
def test_another_signature_is_another_loop(file: Path) -> None:
    read(file)
    reread = changed(file, "int64(int64)", "float64(float64)")
    assert reread.twice.stats.cache_misses
    assert reread.four_times(0.5) == 2.0


def test_a_loop_that_reads_names_through_a_module_of_ours_is_refused(file: Path) -> None:
    with pytest.raises(TypeError, match=r"imports names from solvers\.latency"):
        changed(file, "FACTOR = 2", "import solvers.latency as FACTOR")


def test_compiling_is_announced_once_and_loading_is_not(file: Path) -> None:
    announced: list[str] = []
    compiled.call_before_compiling(lambda: announced.append("compiling"))
    read(file)
    assert announced == ["compiling"]
    compiled.call_before_compiling(lambda: announced.append("again"))
    read(file)
    assert announced == ["compiling"]
    compiled.BEFORE_COMPILING.clear()


def test_an_inner_loop_can_only_be_called_by_loops(file: Path) -> None:
    module = changed(file, '@njit("int64(int64)")\ndef twice', '@njit("int64(int64)", inner=True)\ndef twice')
    assert module.four_times(3) == 12
    with pytest.raises(TypeError, match="No matching definition"):
        module.twice(3)
    reread = imported(file)
    with pytest.raises(TypeError, match="No matching definition"):
        reread.twice(3)
    assert reread.four_times(3) == 12


def test_a_loop_without_counting_may_not_return_arrays(file: Path) -> None:
    file.write_text(LOOPS.replace("int64(int64)", "int64[:](int64[:])").replace("FACTOR * number", "number"))
    with pytest.raises(TypeError, match="twice returns arrays: makes_arrays=True"):
        read(file)


@pytest.mark.slow
def test_all_cores_compile_each_missing_loop_once(file: Path, cache: Path) -> None:
    environment = os.environ | {"PYTHONPATH": f"{file.parent}:{Path(compiled.__file__).parent.parent}"}
    command = [sys.executable, "-m", "solvers.compiling", "loops"]
    subprocess.run(command, env=environment, check=True)
    kept = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert sorted(path.name.partition("-")[0] for path in kept) == ["loops.four_times", "loops.twice"]
    subprocess.run(command, env=environment, check=True)
    program = "import loops; assert loops.four_times(3) == 12; assert loops.four_times.stats.cache_hits"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == kept


@pytest.mark.slow
def test_reading_all_loops_waits_for_a_process_that_compiles_them(file: Path, cache: Path) -> None:
    read(file)
    away = entry(cache, "twice").rename(cache.parent / "away")
    late = imported(file)
    with loop_cache.compiling_alone(loop_cache.cache_folder() or cache):
        compiled.read_all(waits=False)
        assert not late.four_times.signatures
        bringing_back = threading.Timer(0.3, lambda: away.rename(cache / late.twice._cache._path.name))
        bringing_back.start()
        compiled.read_all()
    assert late.twice.stats.cache_hits
    assert not compiled.WAITING


def test_an_inner_loop_is_read_only_where_a_loop_that_calls_it_must_be_compiled(file: Path, cache: Path) -> None:
    file.write_text(LOOPS.replace('@njit("int64(int64)")', '@njit("int64(int64)", inner=True)', 1))
    assert read(file).four_times(3) == 12
    again = read(file)
    assert again.four_times(3) == 12
    assert not again.twice.signatures
    entry(cache, "four_times").unlink()
    compiled_again = read(file)
    assert compiled_again.four_times(3) == 12
    assert compiled_again.twice.stats.cache_hits


def test_no_process_waits_for_one_that_has_ended(cache: Path) -> None:
    folder = loop_cache.cache_folder() or cache
    with loop_cache.compiling_alone(folder):
        assert loop_cache.is_compiled_elsewhere(folder)
    assert not loop_cache.is_compiled_elsewhere(folder)

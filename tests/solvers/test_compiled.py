"""Compiled loops: read or compiled when called, compiled again when anything they are made of changed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from solvers import compiled, loop_cache
from tests.solvers.loops import LOOPS, changed, entry, imported, read


def test_a_new_loop_is_compiled_when_called_and_a_kept_one_read(file: Path) -> None:
    first = imported(file)
    assert not first.four_times.signatures
    assert first.four_times(3) == 12
    assert first.four_times.stats.cache_misses
    assert first.twice.stats.cache_misses
    kept = imported(file)
    assert not kept.four_times.signatures
    assert kept.four_times(3) == 12
    assert kept.four_times.stats.cache_hits
    assert not kept.twice.signatures  # four_times holds what it needs of it
    compiled.read_all()
    assert kept.twice.stats.cache_hits
    assert kept.twice(3) == 6


def test_nothing_but_the_signature_is_compiled(file: Path) -> None:
    read(file)
    loop = read(file).twice
    with pytest.raises(TypeError):
        loop("two")
    assert len(loop.signatures) == 1


def test_a_loop_compiled_anew_uses_a_kept_one(file: Path, cache: Path) -> None:
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


def test_a_clone_in_another_folder_finds_what_was_compiled(file: Path, tmp_path: Path) -> None:
    read(file)
    (tmp_path / "clone").mkdir()
    clone = read(file.rename(tmp_path / "clone" / "loops.py"))
    assert clone.four_times.stats.cache_hits
    assert clone.four_times(3) == 12


def test_a_comment_a_docstring_and_a_moved_line_compile_nothing(file: Path) -> None:
    read(file)
    again = changed(file, "    return FACTOR", '    """Doubles."""\n    # by the factor\n    return FACTOR')
    assert again.twice.stats.cache_hits
    assert again.four_times.stats.cache_hits
    assert again.four_times(3) == 12


def test_a_changed_loop_is_compiled_with_all_that_call_it(file: Path) -> None:
    read(file)
    again = changed(file, "FACTOR * number", "FACTOR * number + 1")
    assert again.twice.stats.cache_misses
    assert again.four_times.stats.cache_misses
    assert again.four_times(3) == 15


def test_a_changed_constant_compiles_what_reads_it(file: Path) -> None:
    read(file)
    again = changed(file, "FACTOR = 2", "FACTOR = 3")
    assert again.four_times.stats.cache_misses
    assert again.four_times(3) == 27


def test_a_changed_caller_leaves_alone_what_it_calls(file: Path) -> None:
    read(file)
    again = changed(file, "twice(twice(number))", "twice(twice(number)) + 1")
    assert again.four_times.stats.cache_misses
    assert again.twice.stats.cache_hits


def test_another_signature_is_another_loop(file: Path) -> None:
    read(file)
    again = changed(file, "int64(int64)", "float64(float64)")
    assert again.twice.stats.cache_misses
    assert again.four_times(0.5) == 2.0


def test_a_loop_that_reads_names_through_a_module_of_ours_is_refused(file: Path) -> None:
    with pytest.raises(TypeError, match=r"imports names from solvers\.latency"):
        changed(file, "FACTOR = 2", "import solvers.latency as FACTOR")


def test_compiling_is_announced_once_and_reading_is_not(file: Path) -> None:
    announced: list[str] = []
    compiled.before_compiling(lambda: announced.append("compiling"))
    read(file)
    assert announced == ["compiling"]
    compiled.before_compiling(lambda: announced.append("again"))
    read(file)
    assert announced == ["compiling"]
    compiled.BEFORE_COMPILING.clear()


def test_an_inner_loop_is_for_loops_alone(file: Path) -> None:
    module = changed(file, '@njit("int64(int64)")\ndef twice', '@njit("int64(int64)", inner=True)\ndef twice')
    assert module.four_times(3) == 12
    with pytest.raises(TypeError, match="No matching definition"):
        module.twice(3)
    again = imported(file)
    with pytest.raises(TypeError, match="No matching definition"):
        again.twice(3)
    assert again.four_times(3) == 12


def test_arrays_that_are_not_counted_are_not_handed_out(file: Path) -> None:
    file.write_text(LOOPS.replace("int64(int64)", "int64[:](int64[:])").replace("FACTOR * number", "number"))
    with pytest.raises(TypeError, match="twice returns arrays: makes_arrays=True"):
        read(file)


def test_all_cores_compile_what_is_missing_once(file: Path, cache: Path) -> None:
    environment = os.environ | {"PYTHONPATH": f"{file.parent}:{Path(compiled.__file__).parent.parent}"}
    command = [sys.executable, "-m", "solvers.compiling", "loops"]
    subprocess.run(command, env=environment, check=True)
    kept = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert sorted(path.name.partition("-")[0] for path in kept) == ["loops.four_times", "loops.twice"]
    subprocess.run(command, env=environment, check=True)
    program = "import loops; assert loops.four_times(3) == 12; assert loops.four_times.stats.cache_hits"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == kept


def test_who_needs_all_waits_for_a_process_that_compiles_them(file: Path, cache: Path) -> None:
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


def test_nobody_waits_for_a_process_that_is_gone(cache: Path) -> None:
    folder = loop_cache.cache_folder() or cache
    with loop_cache.compiling_alone(folder):
        assert loop_cache.is_compiled_elsewhere(folder)
    assert not loop_cache.is_compiled_elsewhere(folder)

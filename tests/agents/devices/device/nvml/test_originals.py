"""A GPU's original settings are on disk before it is changed, and void after a reboot."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agents.devices.nvml.originals import Original, Originals, open_originals

SET = Original(clock_locked=True, power_mw=500_000)


def test_what_was_kept_is_known_to_the_next_who_opens_the_file(tmp_path: Path) -> None:
    Originals(tmp_path / "originals.json").keep("GPU-1", SET)
    reopened = Originals(tmp_path / "originals.json")
    assert (reopened.of("GPU-1"), reopened.changed()) == (SET, ("GPU-1",))
    reopened.forget("GPU-1")
    assert Originals(tmp_path / "originals.json").changed() == ()


def test_after_a_reboot_the_driver_has_forgotten_and_so_have_we(tmp_path: Path) -> None:
    Originals(tmp_path / "originals.json", "boot-1").keep("GPU-1", SET)
    assert Originals(tmp_path / "originals.json", "boot-2").changed() == ()


def test_a_file_that_cannot_be_read_is_set_aside_and_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "originals.json"
    path.write_text('{"bootId"')
    assert open_originals(path).changed() == ()
    assert path.with_suffix(".unreadable").exists()


def test_what_could_not_be_written_is_not_known_and_is_written_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "originals.json"
    originals = Originals(path)
    (tmp_path / "originals.json.new").mkdir()
    for _ in range(2):
        with pytest.raises(OSError, match=r"originals\.json\.new"):
            originals.keep("GPU-1", SET)
    assert originals.changed() == ()
    (tmp_path / "originals.json.new").rmdir()
    originals.keep("GPU-1", SET)
    assert Originals(path).of("GPU-1") == SET


def test_each_knob_is_saved_once_and_with_the_others(tmp_path: Path) -> None:
    originals = Originals(tmp_path / "originals.json")
    for knob in (Original(power_mw=500_000), Original(compute_mode=0), Original(power_mw=1), Original(compute_mode=3)):
        originals.keep("GPU-1", knob)
    assert Originals(tmp_path / "originals.json").of("GPU-1") == Original(power_mw=500_000, compute_mode=0)


def test_threads_that_keep_at_once_lose_nothing(tmp_path: Path) -> None:
    originals = Originals(tmp_path / "originals.json")

    def keep(gpu: int) -> None:
        for knob in (Original(clock_locked=True), Original(power_mw=gpu), Original(compute_mode=gpu)):
            originals.keep(f"GPU-{gpu}", knob)

    threads = [threading.Thread(target=keep, args=(gpu,)) for gpu in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reopened = Originals(tmp_path / "originals.json")
    assert {gpu: reopened.of(gpu) for gpu in reopened.changed()} == {f"GPU-{n}": Original(True, n, n) for n in range(8)}

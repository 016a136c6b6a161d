"""A job's progress survives its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.programs.train import main


def test_what_was_saved_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    assert main.load_steps(path) == 0
    main.save_steps(path, 12)
    main.save_steps(path, 34)
    assert main.load_steps(path) == 34
    assert [file.name for file in tmp_path.iterdir()] == ["job.json"]


def test_a_write_that_was_cut_short_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    main.save_steps(path, 12)
    (tmp_path / "job.json.new").write_text('{"ste')
    assert main.load_steps(path) == 12


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"steps": -1}', '{"steps": 1.5}', '{"steps": true}', "\0"])
def test_a_damaged_checkpoint_is_named_and_never_taken_for_a_beginning(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    with pytest.raises(main.Damaged, match=r"job\.json"):
        main.load_steps(path)

"""`bench profiler` prints what docs/benchmarks.md says: models alone, and beside neighbours, for each truth."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.main import main
from lab.bench import profiler

pytestmark = pytest.mark.slow


def rows_of(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["bench", "profiler", "--seeds", "1", "--every", "70", "--json", *words]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_campaigns_are_judged_at_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    alone, beside = rows_of(capsys, "--most", "9", "--clocks", "600,1000")
    assert (alone["what"], beside["what"]) == ("alone", "beside")
    for row in (alone, beside):
        assert row.keys() <= set(profiler.SHOWN)
        assert 2 <= row["measurements"] <= 9
        assert 0 < row["mean"] <= row["worst"]
    assert alone["points"] == alone["profiles"] * 6 * 8 * 2
    assert beside["all_by_batch"] <= beside["all"], "more values fit no worse where everything is measured"
    assert alone["mean"] < alone["random"], "the choice of settings and the fitted curve are worth something"


def test_more_measurements_err_less(capsys: pytest.CaptureFixture[str]) -> None:
    few, _ = rows_of(capsys, "--most", "4", "--noise", "0.001")
    many, _ = rows_of(capsys, "--most", "24", "--noise", "0.001", "--accuracy", "0.001")
    assert (few["measurements"], many["measurements"]) == (4, 24)
    assert many["mean"] < few["mean"]


def test_a_row_without_a_value_has_an_empty_cell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "profiler", "--seeds", "1", "--every", "70", "--most", "2"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[1] for row in rows] == ["alone", "beside"]
    assert head.split()[-3:] == ["HALF_BY_BATCH", "ALL", "ALL_BY_BATCH"]

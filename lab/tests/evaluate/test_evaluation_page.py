"""The page of an evaluation shows every claim, held or not, and escapes what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.main import main
from lab.evaluate.charts import draw_evaluation
from lab.evaluate.page import evaluation_page
from lab.tests.evaluate.test_hetsev import results

CLAIM = {
    "id": "H5", "metric": "cost <b>", "paper": 2.15, "reproduced": 1.5, "best_baseline": 2.0, "ours": 1.0,
    "paper_baseline": 4.0, "ratio": 4.0, "holds": True, "truth": "scaled", "seeds": 3, "note": "a & b",
}  # fmt: skip


def test_the_page_shows_what_holds_and_what_does_not() -> None:
    missed = CLAIM | {"holds": False, "ratio": None}
    runs = [result.figures() for result in results("cost", 0)]
    page = evaluation_page("hetsev", {"claims": [CLAIM, missed], "runs": runs}, ["cost"])
    assert "1 of 2 claims hold" in page
    assert page.count("does not hold</td>") == 1
    assert "cost &lt;b&gt;" in page
    assert "a &amp; b" in page
    assert page.count("<tr>") == 1 + 2 * 2 + 1 + len(runs)
    assert 'src="cost.svg"' in page


@pytest.mark.slow
def test_drawings_are_the_same_for_the_same_results(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
        assert draw_evaluation(results("cost", 0), folder) == ["cost", "cost-by-service"]
    for name in ("cost.svg", "cost-by-service.svg", "cost.png", "cost-by-service.png"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_a_folder_that_cannot_be_made_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["evaluate", "hetsev", "--out", str(tmp_path / "file" / "below")]) == 2
    assert "cannot make the folder" in capsys.readouterr().err

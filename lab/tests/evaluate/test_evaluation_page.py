"""The page of an evaluation shows every claim, held or not, and escapes what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.main import main
from lab.evaluate.charts import draw_evaluation
from lab.evaluate.page import evaluation_page
from lab.evaluate.verdicts import count_verdicts
from lab.tests.evaluate.test_hetsev import results

CLAIM = {
    "id": "H5", "metric": "cost <b>", "paper": 2.15, "reproduced": 1.5, "best_baseline": 2.0, "ours": 1.0,
    "paper_baseline": {"hpa": 4.0}, "ratio": 4.0, "truth": "scaled", "seeds": 3, "note": "a & b", "because": "",
    "printed": 2.15, "rivals": {}, "miss": "",
    "verdicts": {"paper_planner_reaches": "no", "ours_reaches": "yes", "ours_is_best": "not decided"},
}  # fmt: skip


def test_the_page_shows_three_verdicts_of_each_claim_and_why_one_is_missed() -> None:
    no = dict.fromkeys(("paper_planner_reaches", "ours_reaches", "ours_is_best"), "no")
    rival = {"ours_is_dearer": False, "ours_attains_less": True, "ours_is_better": "no"}
    missed = CLAIM | {"verdicts": no, "ratio": None, "paper": None, "miss": "spikes rise within 30 s"}
    missed |= {"rivals": {"hpa": rival, "hetsev": rival | {"ours_is_better": "yes"}}}
    runs = [result.figures() for result in results("cost", 0)]
    claims = [CLAIM, missed]
    page = evaluation_page("hetsev", {"claims": claims, "counts": count_verdicts(claims), "runs": runs}, ["cost"])
    assert "ours reaches it: 1 yes, 1 no" in page
    assert page.count('class="no">no</td>') == 1 + 3
    assert "spikes rise within 30 s Ours is not better than hpa (attains less). a" in page
    assert "(2.15)" in page
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

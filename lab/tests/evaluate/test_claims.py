"""The claims are written down before anything runs: each has one rule, a baseline that is measured, and its reasons."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from lab.evaluate import claims
from lab.evaluate.claims import AT_LEAST, BEST, CLAIMS_FILE, PRINTED, read_claims
from lab.evaluate.evaluations import MEASURES

EVERY_CLAIM = [claim for system in MEASURES for claim in read_claims(system)]


def test_every_system_has_its_claims_and_each_figure_that_is_not_comparable_its_reason() -> None:
    assert set(yaml.safe_load(CLAIMS_FILE.read_text())) == set(MEASURES)
    for claim in EVERY_CLAIM:
        assert re.fullmatch(r"[HMIKO]\d", claim.row)
        assert (claim.comparable_figure is None) == (claim.rule == PRINTED) == bool(claim.because)
        assert claim.truth in ("printed", "measured", "scaled")
        assert claim.is_more_better or claim.rule != AT_LEAST


def test_no_two_claims_ask_the_same() -> None:
    asked = [(claim.planner, claim.measures, claim.rule, claim.baselines, claim.figure) for claim in EVERY_CLAIM]
    assert len(set(asked)) == len(asked)


def test_a_file_names_a_reason_where_it_gives_a_figure_up_and_nowhere_else(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"row": "X1", "metric": "cost", "measures": "cost", "of": BEST}
    for fields in ({"printed": 2}, {"times": 2, "because": "it is another machine's"}):
        written = {"x": {"planner": "paper", "truth": "scaled", "sentences": {}, "claims": [row | fields]}}
        file = tmp_path / "claims.yaml"
        file.write_text(yaml.safe_dump(written))
        monkeypatch.setattr(claims, "CLAIMS_FILE", file)
        with pytest.raises(ValueError, match="a printed figure needs a reason"):
            read_claims("x")

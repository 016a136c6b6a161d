"""The inferno benchmark on a small fleet of our own, against brute force."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest

from lab.data.missing_data import DataMissing
from lab.published import inferno
from lab.published.inferno import Candidate, CandidatePools

FLEET = CandidatePools(
    (
        Candidate("chat", "L4", 5, Fraction(6), "L4", 1, Fraction(21, 100)),
        Candidate("chat", "A100", 2, Fraction(40), "A100", 1, Fraction(7, 10)),
        Candidate("code", "L4", 8, Fraction(6), "L4", 1, Fraction(13, 100)),
        Candidate("code", "2xA100", 1, Fraction(80), "A100", 2, Fraction(1)),
    ),
    {"L4": 10, "A100": 3},
)


def brute(fleet: CandidatePools, mixed: bool) -> Fraction:
    keys = [(c.server, c.accelerator) for c in fleet.candidates]
    ranges = [range(c.replicas + 1) if mixed else (0, c.replicas) for c in fleet.candidates]
    answers = (dict(zip(keys, counts, strict=True)) for counts in product(*ranges))
    return min(inferno.cost(fleet, one) for one in answers if not inferno.violations(fleet, one, mixed))


@pytest.mark.parametrize("mixed", [False, True])
def test_the_proved_optimum_equals_brute_force(mixed: bool) -> None:
    answer, cost, bound = inferno.solve(FLEET, mixed)
    assert inferno.violations(FLEET, answer, mixed) == []
    assert cost == bound == brute(FLEET, mixed)


def test_rates_a_hair_under_what_is_needed_are_not_taken_for_enough() -> None:
    hair = Candidate("s", "L4", 2, Fraction(1), "L4", 1, Fraction(1) - Fraction(1, 10**12))
    fleet = CandidatePools((hair,), {"L4": 5})
    answer, cost, bound = inferno.solve(fleet, mixed=True)
    assert inferno.violations(fleet, answer, True) == ["s gets 1.000000 of its rate"]
    assert cost == bound == 1  # a bound all the same, and no proof is claimed of it


def test_the_files_are_read_and_both_readings_proved(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    accelerators = [{"name": "L4", "type": "L4", "multiplicity": 1, "cost": 6.0}]
    (tmp_path / "small/accelerator-data.json").write_text(json.dumps({"accelerators": accelerators}))
    (tmp_path / "small/capacity-data.json").write_text(json.dumps({"count": [{"type": "L4", "count": 9}]}))
    (tmp_path / "derived_candidates_small.csv").write_text("CAND,chat,L4,3,18,19.8,4e-5,1e-4\n")
    rows = inferno.run(tmp_path)
    assert [(row["cost"], row["proved"]) for row in rows.values()] == [(18.0, True), (18.0, True)]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"derived_candidates_small\.csv is missing"):
        inferno.read(tmp_path)

"""Reads the claims of the papers (claims.yaml): their figures, and the rule by which each is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CLAIMS_FILE = Path(__file__).with_name("claims.yaml")
BEST = "best"  # as a claim's baseline: the best one by what was measured
TIMES, AT_MOST, AT_LEAST, PRINTED = "times", "at_most", "at_least", "printed"
RULES = (TIMES, AT_MOST, AT_LEAST, PRINTED)


@dataclass(frozen=True, slots=True)
class PaperClaim:
    """A figure that a paper states, with its rule, its baseline and its planner."""

    row: str
    metric: str
    measures: str  # the measured figure that it is about
    rule: str  # one of RULES
    figure: float
    baselines: tuple[str, ...]  # readings of the paper's own; (BEST,): the best by what was measured
    planner: str
    truth: str  # printed, measured or scaled: what the testbed's execution times are made from
    is_more_better: bool = False
    note: str = ""
    because: str = ""  # why the printed figure is not comparable here
    miss: str = ""  # why it is missed

    @property
    def comparable_figure(self) -> float | None:
        """Returns the paper's figure; None where it belongs to another machine, or contradicts the paper's own."""
        return None if self.rule == PRINTED else self.figure


def read_claims(system: str) -> list[PaperClaim]:
    """Returns the claims of a system's paper, in the file's order."""
    paper: Mapping[str, Any] = yaml.safe_load(CLAIMS_FILE.read_text())[system]
    return [_read_claim(paper, fields) for fields in paper["claims"]]


def _read_claim(paper: Mapping[str, Any], fields: Mapping[str, Any]) -> PaperClaim:
    (rule,) = (name for name in RULES if name in fields)
    if (rule == PRINTED) != ("because" in fields):
        raise ValueError(
            f"claim {fields['metric']!r}: a printed figure needs a reason (because), and nothing else does"
        )
    of: str | Sequence[str] = fields["of"]
    sentences = [paper["sentences"][name] for name in fields.get("notes", ())]
    return PaperClaim(
        row=fields["row"],
        metric=fields["metric"],
        measures=fields["measures"],
        rule=rule,
        figure=float(fields[rule]),
        baselines=(of,) if isinstance(of, str) else tuple(of),
        planner=paper["planner"],
        truth=fields.get("truth", paper["truth"]),
        is_more_better=rule == AT_LEAST or fields.get("better") == "more",
        note=" ".join([*sentences, *([fields["note"]] if "note" in fields else [])]),
        because=fields.get("because", ""),
        miss=fields.get("miss", ""),
    )

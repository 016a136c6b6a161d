"""What `gpuwright plan` prints of a plan: what its rollout waits for, and what it changes."""

from __future__ import annotations

from typing import Any

from app.control.rollout import check
from cli.verbs.plan import differences
from cli.views.rollout import LINES_SHOWN, STAGES, rollout_lines

NOW = 1000.0
COPY = {"id": "tags-b88ce2bb", "service": "shop/tags", "node": "l4-1", "gpu": 3}


def lines(**rollout: Any) -> list[str]:
    return list(rollout_lines({"state": "rolling", "instances": [COPY], "rollout": {"steps": 4, **rollout}}, NOW))


def test_what_is_under_way_is_named_with_its_place_and_how_far_it_is() -> None:
    counts, warming = lines(pending={"tags-b88ce2bb": {"since": 955.0, "progress": 4}})
    assert counts == "rollout: step 4; instances: 1 under way"
    assert warming == "waiting: tags-b88ce2bb (shop/tags) on l4-1/3: it is warming up, for 45s"
    (_, held) = lines(pending={"tags-b88ce2bb": {"since": 955.0, "progress": 1, "held_since": 990.0}})
    assert "its node reports that it cannot make it" in held
    assert len(STAGES) == len(check.STAGES)


def test_nodes_that_are_behind_stand_first_and_changes_that_are_blocked_next() -> None:
    assert lines(
        lagging={"l4-1": {"generation": 3, "since": 958.0}},
        blocked={"gone-1": 980.0},
        pending={"tags-b88ce2bb": {"since": 900.0, "progress": 0}},
    )[1:] == [
        "l4-1 has not applied its assignment for 42s",
        "waiting: gone-1: nothing is under way that makes room for it, for 20s",
        "waiting: tags-b88ce2bb (shop/tags) on l4-1/3: its node has not applied it, for 100s",
    ]


def test_at_most_ten_are_listed_and_a_rollout_that_has_ended_waits_for_nothing() -> None:
    shown = lines(pending={f"i-{number}": {"since": float(number)} for number in range(12)})
    assert len(shown) == LINES_SHOWN + 2
    assert shown[-1] == "and 2 more; --json has them all"
    assert lines() == []
    pending = {"i-1": {"since": 1.0}}
    assert list(rollout_lines({"state": "superseded", "rollout": {"pending": pending}}, NOW)) == []


def test_what_is_held_back_of_the_whole_plan_is_no_service_without_a_name() -> None:
    shapes = {"instances": 0, "shapes": [], "unservedPerSecond": 0.0}
    held = {"service": "", "words": "0 -> 0 instances", "before": shapes, "after": shapes, "reasons": ["held back"]}
    found = list(differences({"generation": 2, "against": 1, "services": [held], "unchanged": 3, "jobs": []}))
    assert found[1:] == ["  the plan: held back", "3 services are as before"]

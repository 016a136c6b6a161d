"""Plans as JSON: written by the contract, and read back or refused with every fault."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.planning.certificate_wire import certificate_out
from solvers.planning.judge import judge
from solvers.planning.plan import Certificate, Changes, Cost, OtherPlan, Plan, PriorityShortfall, Releasable
from solvers.planning.plan_fields import shown, spell_gap, spell_other, spell_shortfall
from solvers.planning.wire import WrongPlan, from_json, to_json
from tests.solvers.planning.small_world import plan, problem


def full_plan() -> Plan:
    return replace(
        plan(),
        jobs=tuple(replace(job, units_per_second=1.5) for job in plan().jobs),
        warnings=("narrow",),
        releasable=(Releasable("n4", 1.0),),
        changes=Changes(1, 2, 3, 4, 5, 6),
        certificate=Certificate(
            Cost(6.0, 100.0, 2.0, 0.5),
            90.0,
            "by hand",
            17,
            0.25,
            others=(
                OtherPlan("morak", Cost(7.0, 50.0, churn=0.25), 0.94),
                OtherPlan("inss", None, 0.0, "too much memory"),
            ),
            programme=92.5,
            shortfalls=(PriorityShortfall(100, 40.0, 13.0, 12.4), PriorityShortfall(50, 60.0, 33.0, None)),
        ),
    )


def test_a_plan_goes_out_in_the_contracts_words() -> None:
    value = to_json(full_plan(), problem())
    assert value["instances"][0] == {
        "id": "shop/search-n1-0", "service": "shop/search", "node": "n1", "gpu": 0, "variant": "v", "batch": 4,
        "batchTimeoutMs": 0.0, "smPercent": 40, "memoryGib": 2.0, "clockMhz": 1200, "ratePerSecond": 20.0,
        "predicted": {"execMs": 0.0, "latencyMs": 0.0},
    }  # fmt: skip
    assert value["jobs"][0] == {
        "job": "lab/tune", "node": "n1", "gpu": 0, "smPercent": 40, "memoryGib": 4,
        "predicted": {"stepsPerSecond": 1.5},
    }  # fmt: skip
    assert value["unserved"] == [
        {"service": "shop/rank", "ratePerSecond": 10.0, "reason": "the limit", "relaxation": ""}
    ]
    assert value["unplaced"] == [{"job": "lab/late", "reason": "too late", "relaxation": ""}]
    assert value["releasable"] == [{"node": "n4", "perHour": 1.0}]
    assert value["changes"] == {"keep": 1, "retune": 2, "resize": 3, "start": 4, "stop": 5, "move": 6}
    assert value["certificate"] == {
        "cost": 106.0, "resourceCost": 6.0, "unservedCost": 100.0, "jobCost": 2.0, "churnCost": 0.5, "bound": 90.0,
        "gap": None, "boundAgeSeconds": 0.0, "noBoundReason": "", "method": "by hand", "work": 17, "seconds": 0.25,
        "otherPlanners": [
            {
                "planner": "morak", "resourceCost": 7.0, "unservedCost": 50.0, "churnCost": 0.25, "servedShare": 0.94,
                "refused": "", "ageSeconds": 0.0,
            },
            {
                "planner": "inss", "resourceCost": None, "unservedCost": None, "churnCost": None, "servedShare": 0.0,
                "refused": "too much memory", "ageSeconds": 0.0,
            },
        ],
        "programme": 92.5,
        "shortfalls": [
            {"priority": 100, "ratePerSecond": 40.0, "unservedPerSecond": 13.0, "boundPerSecond": 12.4},
            {"priority": 50, "ratePerSecond": 60.0, "unservedPerSecond": 33.0, "boundPerSecond": None},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("bound", "programme", "kept", "said"),
    [
        (90.0, 92.5, 92.5, " (2.5 below the bound's programme of 92.5, 13.5 above)"),
        (90.0, 89.0, 90.0, " (0 below the bound's programme of 90, 16 above)"),
        (90.0, 110.0, None, ""),
        (90.0, None, None, ""),
        (None, 92.5, None, ""),
    ],
)
def test_a_gap_is_divided_where_its_programme_is_known(
    bound: float | None, programme: float | None, kept: float | None, said: str
) -> None:
    found = Certificate(Cost(6.0, 100.0), bound, "by hand", 0, 0.0).add_programme(programme)
    assert found.programme == kept
    assert spell_gap(found.cost.total, found.bound, found.programme) == said


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        (12.4567, "at least 12.45 by any plan on these GPUs, by proof"),
        (123456.7, "at least 123,400 by any plan on these GPUs, by proof"),
        (0.0, "the GPUs may have room for all of them"),
        (None, "no bound known"),
    ],
)
def test_a_shortfall_is_told_beside_its_bound_rounded_down(bound: float | None, said: str) -> None:
    whole = Certificate(Cost(6.0, 100.0), None, "", 0, 0.0, shortfalls=(PriorityShortfall(100, 40.0, 13.0, bound),))
    line = certificate_out(whole)["shortfalls"][0]
    assert spell_shortfall(line) == f"priority 100 and above: 13 of 40 requests a second unserved; {said}"


def test_an_offline_job_answers_requests() -> None:
    whole = problem()
    offline = replace(whole, jobs={**whole.jobs, "lab/tune": replace(whole.jobs["lab/tune"], kind="offline")})
    value = to_json(full_plan(), offline)
    assert value["jobs"][0]["predicted"] == {"requestsPerSecond": 1.5}
    assert from_json(value, offline) == full_plan()


def test_what_goes_out_comes_back() -> None:
    assert from_json(json.loads(json.dumps(to_json(full_plan(), problem()))), problem()) == full_plan()
    assert from_json({"instances": []}, problem()) == Plan(())


def test_what_may_be_left_out_has_a_default_and_more_fields_do_no_harm() -> None:
    least = {
        "service": "shop/rank", "node": "n3", "gpu": 0, "variant": "v", "batch": 4, "smPercent": 40,
        "memoryGib": 2, "ratePerSecond": 20, "colour": "red",
    }  # fmt: skip
    (instance,) = from_json({"instances": [least], "note": {}}, problem()).instances
    assert (instance.id, instance.batch_timeout_ms, instance.clock_mhz, instance.exec_ms) == ("", 0.0, 1000, 0.0)


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("instances",), {}, "instances: a mapping of 0 is not allowed (allowed: a list)"),
        (("instances", 0), 7, "instances[0]: 7 is not allowed (allowed: a mapping)"),
        (("instances", 1, "batch"), "8", "instances[1].batch: '8' is not allowed (allowed: a number"),
        (("instances", 1, "batch"), True, "instances[1].batch: true is not allowed"),
        (("instances", 1, "batch"), None, "instances[1].batch: null is not allowed"),
        (("instances", 1, "gpu"), 1e13, "instances[1].gpu: 10000000000000.0 is not allowed"),
        (("instances", 1, "gpu"), float("nan"), "instances[1].gpu: a number that is not finite is not allowed"),
        (("instances", 1, "gpu"), 10**400, "instances[1].gpu: a number of many digits is not allowed"),
        (("instances", 1, "node"), ["n1"], "instances[1].node: a list of 1 is not allowed (allowed: a string)"),
        (("instances", 1, "predicted"), 3, "instances[1].predicted: 3 is not allowed (allowed: a mapping)"),
        (("instances", 1, "predicted", "execMs"), "fast", "instances[1].predicted.execMs: 'fast' is not allowed"),
        (("jobs",), "none", "jobs: 'none' is not allowed (allowed: a list)"),
        (("jobs", 0, "job"), 3, "jobs[0].job: 3 is not allowed"),
        (("unserved", 0, "ratePerSecond"), {}, "unserved[0].ratePerSecond: a mapping of 0 is not allowed"),
        (("unplaced", 0), None, "unplaced[0]: null is not allowed (allowed: a mapping)"),
        (("warnings",), [3], "warnings[0]: 3 is not allowed (allowed: a string)"),
        (("releasable", 0, "perHour"), "4", "releasable[0].perHour: '4' is not allowed"),
        (("changes", "keep"), "all", "changes.keep: 'all' is not allowed"),
        (("certificate",), [], "certificate: a list of 0 is not allowed"),
        (("certificate", "bound"), "high", "certificate.bound: 'high' is not allowed"),
    ],
)
def test_a_wrong_field_is_told_with_its_value_and_what_is_allowed(
    place: tuple[Any, ...], value: Any, says: str
) -> None:
    plan: Any = to_json(full_plan(), problem())
    inner = plan
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    with pytest.raises(WrongPlan) as wrong:
        from_json(plan, problem())
    assert len(wrong.value.faults) == 1
    assert wrong.value.faults[0].startswith(says)
    assert wrong.value.faults[0].isprintable()


def test_every_fault_is_told_and_what_is_missing_is_one() -> None:
    with pytest.raises(WrongPlan) as wrong:
        from_json({"instances": [{"service": 3}, []], "jobs": [{}]}, problem())
    assert len(wrong.value.faults) == 1 + 7 + 1 + 5
    assert "instances[0].node: this field is required (allowed: a string)" in wrong.value.faults
    nothings: list[Any] = [None, 3, "plan", [], True]
    for nothing in nothings:
        with pytest.raises(WrongPlan, match="the plan"):
            from_json(nothing, problem())
    with pytest.raises(WrongPlan, match="instances: this field is required"):
        from_json({}, problem())
    with pytest.raises(WrongPlan) as many:
        from_json({"instances": [7] * 1000}, problem())
    assert len(many.value.faults) == 101


def test_a_value_is_shown_on_one_short_line_that_steers_no_terminal() -> None:
    assert shown("\x1b[2J\u202e\n") == "'\\x1b[2J\\u202e\\n'"
    assert len(shown("x" * 10_000)) < 120


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
numbers = st.sampled_from([0, 1, -1, 0.5, 2, 4, 8, 40, 100, 1e12, -1e12, 256.0])
names = st.sampled_from(["shop/search", "lab/alone", "lab/tune", "n1", "n9", "v", ""])
lines = st.fixed_dictionaries(
    dict.fromkeys(("service", "job", "node", "variant"), names)
    | dict.fromkeys(("gpu", "batch", "smPercent", "memoryGib", "ratePerSecond"), numbers),
    optional=dict.fromkeys(("batchTimeoutMs", "clockMhz"), numbers),
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))
    | st.fixed_dictionaries(
        {"instances": st.lists(lines | leaves, max_size=3)},
        optional={
            name: st.lists(lines | leaves, max_size=2) | leaves
            for name in ("jobs", "unserved", "unplaced", "warnings", "releasable", "changes", "certificate")
        },
    )
)
def test_whatever_is_given_is_judged_or_refused(value: Any) -> None:
    try:
        found = from_json(value, problem())
    except WrongPlan as wrong:
        assert wrong.faults
        return
    judge(problem(), found, simulate=False)


def test_sums_may_be_larger_than_what_manifests_may_state() -> None:
    rich = replace(
        full_plan(),
        releasable=(Releasable("n4", 4e12),),
        certificate=Certificate(Cost(3e12, 1e27, 2e13, 5e12), 1e27, "by hand", 17, 0.25),
    )
    assert from_json(json.loads(json.dumps(to_json(rich, problem()))), problem()).certificate == rich.certificate


def test_plans_of_other_planners_are_told_by_money_and_by_what_they_serve() -> None:
    certificate = to_json(full_plan(), problem())["certificate"]
    assert certificate
    morak, inss = certificate["otherPlanners"]
    assert spell_other(morak) == "morak 7 and 0.25 once, serves 94 %"
    assert spell_other(inss) == "inss breaks a rule"
    kept = {**morak, "churnCost": 0.0, "servedShare": 0.99996, "ageSeconds": 180.0}
    assert spell_other(kept) == "morak 7, serves 99.9 %, 180 s ago"
    assert spell_other({**kept, "servedShare": 1 - 1e-9, "ageSeconds": 0.0}) == "morak 7, serves all"


def test_a_wrong_plan_of_another_planner_is_named_by_its_place() -> None:
    value: Any = to_json(full_plan(), problem())
    value["certificate"]["otherPlanners"][1]["servedShare"] = "most"
    with pytest.raises(WrongPlan, match=r"certificate\.otherPlanners\[1\]\.servedShare"):
        from_json(value, problem())

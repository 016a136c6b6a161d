"""`verify` judges plans that come as files: right ones, wrong ones, and what is no plan at all."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from solvers.planning.judge.attainment import simulate_queue
from tests.cli.conftest import Done
from tests.cli.offline import FLEET, process

Verify = Callable[..., Done]


def instance(**fields: Any) -> dict[str, Any]:
    """One that carries all of search, by half a GPU."""
    return {
        "id": "a", "service": "shop/search", "node": "n1", "gpu": 0, "variant": "v", "batch": 4,
        "batchTimeoutMs": 0.0, "smPercent": 50, "memoryGib": 2.0, "clockMhz": 1200, "ratePerSecond": 20.0,
        "predicted": {"execMs": 22.0, "latencyMs": 50.0},
    } | fields  # fmt: skip


@pytest.fixture
def verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verify:
    """`verify` of a plan, given as a value or as bytes, against the fleet."""
    monkeypatch.setenv("NO_COLOR", "1")

    def call(plan: Any, *flags: str, stdin: bool = False, fleet: str = FLEET) -> Done:
        (tmp_path / "fleet.yaml").write_text(fleet)
        data = plan if isinstance(plan, bytes) else json.dumps(plan).encode()
        (tmp_path / "plan.json").write_bytes(data)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        name = "-" if stdin else str(tmp_path / "plan.json")
        capsys.readouterr()
        code = main(["verify", "-f", str(tmp_path / "fleet.yaml"), name, *flags])
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return call


def test_a_right_plan_is_exit_0_with_its_cost_and_attainment(verify: Verify) -> None:
    done = verify({"instances": [instance()]}, "--json")
    assert done.code == 0
    assert json.loads(done.out) == {
        "violations": [],
        "cost": 4.0,
        "resourceCost": 4.0,
        "unservedCost": 0.0,
        "jobCost": 0.0,
        "churnCost": 0.0,
        "attainment": {"shop/search": 1.0},
        "accuracy": {"shop/search": 0.8},
        "changes": {"keep": 0, "retune": 0, "resize": 0, "start": 1, "stop": 0, "move": 0},
        "misstated": [],
    }
    assert done.err == ""
    assert verify({"instances": [instance()]}, "--json", stdin=True).out == done.out


def test_a_broken_rule_is_exit_1_with_its_name_its_place_and_its_numbers(verify: Verify) -> None:
    plan = {"instances": [instance(smPercent=19, predicted={"execMs": 40.0}), instance(id="b", gpu=1, ratePerSecond=5)]}
    done = verify(plan, "--json")
    assert done.code == 1
    assert [(one["rule"], one["where"]) for one in json.loads(done.out)["violations"]] == [
        ("rates_add_up", "shop/search"),
        ("sm_profiled", "shop/search on n1/0"),
    ]
    assert [one["rule"] for one in json.loads(done.out)["misstated"]] == ["exec_told"]
    text = verify(plan)
    assert text.code == 1
    assert "broken: shop/search on n1/0: sm_profiled: smPercent 19 is not a whole number of the" in text.out
    assert (
        "broken: shop/search: rates_add_up: 25 served and 0 unserved a second do not add up to the rate of 20"
        in text.out
    )
    assert "misstated: shop/search on n1/0: exec_told: predicted execMs 40 is 32" in text.out
    assert "the plan is wrong: 2 broken rules" in text.out


def test_an_slo_that_is_not_kept_is_simulated(verify: Verify) -> None:
    done = verify({"instances": [instance(batchTimeoutMs=400.0)]}, "--json")
    told = json.loads(done.out)
    assert (done.code, [one["rule"] for one in told["violations"]]) == (1, ["slo_holds"])
    assert 0 < told["attainment"]["shop/search"] < 0.9


@pytest.mark.slow
def test_equal_instances_are_simulated_once_and_reported_once(verify: Verify) -> None:
    wrong = [instance(id=f"i{number}", ratePerSecond=150.0) for number in range(3000)]
    simulate_queue.cache_clear()
    done = verify({"instances": wrong})
    assert done.code == 1
    assert simulate_queue.cache_info().misses == 2  # the short look, and the long one
    assert len([line for line in done.lines if "slo_holds" in line]) == 1
    assert "(3000 times)" in done.out


def test_a_long_list_of_broken_rules_is_cut_for_people_alone(verify: Verify) -> None:
    wrong = {"instances": [instance(id=f"i{number}", gpu=number, ratePerSecond=0.1) for number in range(2, 202)]}
    assert "broken: 100 more; --json has them all" in verify(wrong).out
    assert len(json.loads(verify(wrong, "--json").out)["violations"]) == 200


def test_a_plan_is_shown_to_people_with_the_services_nearest_to_their_promise(verify: Verify) -> None:
    lines = verify({"instances": [instance()]}).lines
    assert lines[0] == "the plan is right: 0 broken rules"
    assert lines[1].startswith("cost 4 an hour")
    assert lines[-1].split() == ["shop/search", "100.000", "%"]
    budget: dict[str, Any] = {"apiVersion": "gpuwright/v1", "kind": "Tenant", "metadata": {"name": "shop"}}
    budget["spec"] = {"budget": {"perMonth": 9, "currency": "CHF"}}
    assert (
        verify({"instances": [instance()]}, fleet=f"{FLEET}---\n{json.dumps(budget)}")
        .lines[1]
        .startswith("cost 4 CHF an hour (")
    )


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (b"", "this is not JSON"),
        (b"{", "this is not JSON"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested deeper than 64 levels"),
        (b'{"instances": [NaN]}', "NaN is not a finite number"),
        (b'{"instances": [1e999]}', "too large"),
        (b'{"instances": [], "instances": []}', 'the key "instances" appears twice'),
        (b"null", "the plan: null is not allowed (allowed: a mapping)"),
        (b"{}", "instances: this field is required (allowed: a list)"),
        (b'{"instances": [{"gpu": "0"}]}', "instances[0].gpu: '0' is not allowed (allowed: a number"),
    ],
)
def test_a_file_that_is_no_plan_is_exit_2_and_reported(verify: Verify, plan: bytes, says: str) -> None:
    done = verify(plan, "--json")
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert "Traceback" not in done.err
    assert "internal error" not in done.err


def test_a_plan_of_too_many_values_is_exit_2_and_reported(verify: Verify) -> None:
    done = verify(b"[" + b"0," * 2_000_001 + b"0]", "--json")
    assert (done.code, done.out) == (2, "")
    assert "more than 2,000,000 values" in done.err
    assert "Traceback" not in done.err
    assert "internal error" not in done.err


def test_missing_files_and_two_uses_of_stdin_are_reported(tmp_path: Path, verify: Verify) -> None:
    verify({"instances": []})
    assert main(["verify", "-f", str(tmp_path / "fleet.yaml"), str(tmp_path / "none.json")]) == 2
    assert main(["verify", "-f", str(tmp_path / "none.yaml"), str(tmp_path / "plan.json")]) == 2
    assert main(["verify", "-f", "-", "-"]) == 2


def test_names_of_a_plan_steer_no_terminal(verify: Verify) -> None:
    done = verify(
        {"instances": [instance(service="shop/\x1b[2J\u202e")], "unserved": [{"service": "\x07", "ratePerSecond": 1}]}
    )
    assert done.code == 1
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out
    assert "\x07" not in done.out


@pytest.mark.slow
def test_a_whole_process_verifies(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "plan.json").write_text(json.dumps({"instances": [instance()]}))
    done = process(tmp_path, "verify", "-f", str(tmp_path / "fleet.yaml"), str(tmp_path / "plan.json"), "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["violations"] == []


def test_exact_proves_what_the_cheapest_plan_costs_and_how_far_this_one_is_off(verify: Verify) -> None:
    best = verify({"instances": [instance()]}, "--exact", "--json")
    assert best.code == 0
    exact = json.loads(best.out)["exact"]
    assert (exact["isProved"], exact["isBelowBound"], exact["cost"]) == (True, False, 4.0)
    assert "exact: this plan is as cheap" in verify({"instances": [instance()]}, "--exact").out
    nothing = {"instances": [], "unserved": [{"service": "shop/search", "ratePerSecond": 20.0}]}
    assert "exact: this plan costs 499900.0" in verify(nothing, "--exact").out
    assert "--exact-work is for --exact" in verify(nothing, "--exact-work", "5").err

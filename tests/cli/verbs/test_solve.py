"""`solve` decides from files alone: the plan, its proof and its reasons, for people and for machines."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from tests.cli.conftest import Done
from tests.cli.offline import FLEET, ROOT, process

Solve = Callable[..., Done]
HOPELESS = """\
---
apiVersion: gpuwright/v1
kind: Service
metadata: {name: hopeless, tenant: shop}
spec: {model: m, slo: {latencyMs: 2, percentile: 98}, ratePerSecond: 7}
"""
TENANT: dict[str, Any] = {"apiVersion": "gpuwright/v1", "kind": "Tenant", "metadata": {"name": "shop"}}
HEAVY = ("cvxpy", "fastapi", "matplotlib", "ortools", "pandas", "psycopg", "pulp", "sklearn", "sqlalchemy")


@pytest.fixture
def solve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Solve:
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*flags: str, text: str = FLEET) -> Done:
        (tmp_path / "fleet.yaml").write_text(text)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        capsys.readouterr()
        code = main(["solve", "-f", str(tmp_path / "fleet.yaml"), *flags])
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return call


def verified(folder: Path, plan: str, capsys: pytest.CaptureFixture[str]) -> Any:
    (folder / "plan.json").write_text(plan)
    capsys.readouterr()
    main(["verify", "-f", str(folder / "fleet.yaml"), str(folder / "plan.json"), "--json"])
    return json.loads(capsys.readouterr().out)


def without_time(text: str) -> Any:
    plan = json.loads(text)
    del plan["certificate"]["seconds"]
    return plan


@pytest.mark.slow
def test_a_plan_serves_all_and_the_judge_agrees(
    solve: Solve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = solve("--json", "--work", "20")
    assert (done.code, done.err) == (0, "")
    plan = json.loads(done.out)
    (instance,) = plan["instances"]
    assert (instance["service"], instance["node"], instance["ratePerSecond"]) == ("shop/search", "n1", 20)
    assert plan["certificate"]["cost"] == 4  # both GPUs of its node
    assert plan["certificate"]["bound"] == pytest.approx(4)
    assert plan["certificate"]["gap"] == pytest.approx(0)
    assert plan["changes"] == {"keep": 0, "retune": 0, "resize": 0, "start": 1, "stop": 0, "move": 0}
    verdict = verified(tmp_path, done.out, capsys)
    assert (verdict["violations"], verdict["misstated"]) == ([], [])
    assert verdict["cost"] == plan["certificate"]["cost"]


@pytest.mark.slow
def test_a_service_that_nothing_can_serve_does_not_stop_the_others(
    solve: Solve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = solve("--json", "--work", "2", text=FLEET + HOPELESS)
    assert done.code == 3
    plan = json.loads(done.out)
    assert [one["service"] for one in plan["instances"]] == ["shop/search"]
    (left,) = plan["unserved"]
    assert (left["service"], left["ratePerSecond"]) == ("shop/hopeless", 7)
    assert {"reason", "relaxation"} <= left.keys()
    assert verified(tmp_path, done.out, capsys)["violations"] == []


@pytest.mark.slow
def test_the_same_work_gives_the_same_plan(solve: Solve) -> None:
    first = solve("--json", "--work", "5", "--seed", "3")
    assert without_time(solve("--json", "--work", "5", "--seed", "3").out) == without_time(first.out)


def test_no_budget_still_answers(solve: Solve) -> None:
    for flags in (("--seconds", "0"), ("--work", "0")):
        assert json.loads(solve("--json", *flags).out)["instances"]


@pytest.mark.slow
def test_money_has_the_currency_that_a_budget_declares(solve: Solve) -> None:
    budget = "---\n" + json.dumps(TENANT | {"spec": {"budget": {"perMonth": 9, "currency": "CHF"}}})
    done = solve("--work", "3", "-v", text=FLEET + budget)
    assert "cost 4 CHF an hour (GPUs 4)" in done.out and "cost 4 CHF an hour" in done.err
    other = TENANT | {"metadata": {"name": "lab"}, "spec": {"budget": {"perMonth": 9, "currency": "EUR"}}}
    assert "cost 4 an hour (GPUs 4)" in solve("--work", "3", text=f"{FLEET}{budget}\n---\n{json.dumps(other)}").out


@pytest.mark.slow
def test_what_runs_as_planned_is_kept(solve: Solve) -> None:
    plan = json.loads(solve("--json", "--work", "3").out)
    state = {"apiVersion": "gpuwright/v1", "kind": "State", "metadata": {"name": "now"}}
    running = FLEET + "---\n" + json.dumps(state | {"spec": {"running": plan["instances"]}})
    again = json.loads(solve("--json", "--work", "3", text=running).out)
    assert again["changes"] == {"keep": 1, "retune": 0, "resize": 0, "start": 0, "stop": 0, "move": 0}
    assert again["certificate"]["churnCost"] == 0
    assert "changes: 1 keep, 0 retune" in solve("--work", "3", text=running).out


@pytest.mark.slow
def test_a_plan_is_summed_up_for_people_and_written_for_machines(solve: Solve, tmp_path: Path) -> None:
    done = solve("--work", "3", "-o", str(tmp_path / "plan.json"), text=FLEET + HOPELESS)
    assert done.code == 3
    assert done.lines[0].split() == ["SERVICE", "INSTANCES", "SERVED/S", "ASKED/S", "GPU", "TYPES"]
    assert done.lines[1].split() == ["shop/hopeless", "0", "0", "7", "-"]
    assert done.lines[2].split() == ["shop/search", "1", "20", "20", "big"]
    assert "unserved: shop/hopeless: 7 a second: its SLO of" in done.out
    assert " % of the 4 for GPUs alone" in done.out  # a gap that leaves out the price of what nothing can serve
    assert "; least change: slo.latencyMs: " in done.out
    assert any(line.startswith("cost ") for line in done.lines)
    assert json.loads((tmp_path / "plan.json").read_text())["instances"]
    assert solve("--work", "1", "-o", str(tmp_path / "no" / "plan.json")).code == 5


@pytest.mark.slow
def test_progress_goes_to_stderr_where_it_is_asked_for(solve: Solve) -> None:
    done = solve("--json", "--work", "3", "-v")
    assert json.loads(done.out)["instances"]
    assert "cost 4 an hour" in done.err


@pytest.mark.parametrize(
    "flags",
    [("--seconds", "-1"), ("--seconds", "nan"), ("--work", "1.5"), ("--work", "-1"), ("--seed", "x"), ("--nope",)],
)
def test_a_wrong_flag_is_exit_2(solve: Solve, flags: tuple[str, ...]) -> None:
    done = solve(*flags)
    assert (done.code, done.out) == (2, "")
    assert "gpuwright solve --help" in done.err or "not allowed" in done.err


@pytest.mark.slow
def test_a_whole_process_answers_and_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    done = process(tmp_path, "solve", "-f", str(tmp_path / "fleet.yaml"), "--json", "--seconds", "0")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["instances"]
    program = (
        "import sys\n"
        "from cli.main import main\n"
        f"main(['solve', '-f', {str(tmp_path / 'fleet.yaml')!r}, '--seconds', '0'])\n"
        f"print('LOADED', *sorted(set({HEAVY!r}) & {{name.split('.')[0] for name in sys.modules}}))\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert told.stdout.splitlines()[-1] == "LOADED", told.stdout + told.stderr


def test_without_a_gpu_nothing_is_served_and_that_is_proved(
    solve: Solve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = FLEET.split("---\n")
    done = solve("--json", text="---\n".join(part for part in parts if "kind: Node" not in part))
    assert (done.code, done.err) == (3, "")
    plan = json.loads(done.out)
    assert plan["certificate"]["bound"] == plan["certificate"]["cost"] == 20_000
    assert "died" not in plan["certificate"]["method"]
    assert verified(tmp_path, done.out, capsys)["violations"] == []


@pytest.mark.slow
@pytest.mark.parametrize("range_", ["{51: 8}", "{50: 9, 51: 8}"])
def test_a_profile_of_a_few_sm_percents_is_found(solve: Solve, range_: str) -> None:
    text = FLEET.replace("{20: 20, 80: 8}", range_).replace("{20: 32, 80: 12}", range_)
    done = solve("--work", "3", "--json", text=text)
    assert (done.code, done.err) == (0, "")


@pytest.mark.slow
def test_a_job_next_to_gpus_with_whole_prices_is_placed(solve: Solve) -> None:
    job = """\
---
apiVersion: gpuwright/v1
kind: Job
metadata: {name: tune, tenant: lab}
spec: {type: training, steps: 1000, profiles: {big: {stepsPerSecond: {10: 1}, memoryGib: 1}}}
"""
    done = solve("--work", "1", "--json", text=FLEET.replace("gpus: 2", "gpus: 1") + job)
    assert (done.code, done.err) == (0, "")
    assert [placed["job"] for placed in json.loads(done.out)["jobs"]] == ["lab/tune"]


@pytest.mark.slow
def test_a_power_budget_below_the_idle_fleet_is_reported_once(solve: Solve) -> None:
    policy = "---\napiVersion: gpuwright/v1\nkind: Policy\nmetadata: {name: default}\nspec: {powerBudgetW: 70}\n"
    done = solve("--work", "1", "--json", text=FLEET + policy)
    assert (done.code, done.err) == (3, "")
    plan = json.loads(done.out)
    told = "powerBudgetW: 70 W is less than the 80 W that the idle fleet draws; no plan can keep it"
    assert plan["warnings"] == [told]
    assert plan["certificate"]["method"].count("refused") <= 1

"""Jobs that state layers but no pressure are placed by what their layers predict; what is stated stays."""

from __future__ import annotations

import json
from typing import Any

from app.control.formulate.predicted_demands import list_predicted_demands
from app.control.formulate.problem import build_problem
from app.manifests.model import Kind
from app.manifests.offline import DeclaredFiles, Input, load
from solvers.planning.problem import Problem
from tests.support.world import gpu_type

COUNTS = (10, 20, 40, 60, 80)


def job(name: str, layers: dict[str, int] | None, **fields: Any) -> dict[str, Any]:
    profile = {"stepsPerSecond": {"20": 1.0, "100": 3.0}, "memoryGib": 4, **fields}
    if layers:
        profile["layers"] = layers
    spec = {"type": "training", "steps": 1000, "profiles": {"v100-16gb": profile}}
    return {"apiVersion": "gpuwright/v1", "kind": "Job", "metadata": {"name": name, "tenant": "lab"}, "spec": spec}


MEASURED = [
    job(f"known-{count}", {"conv": count}, pressure={"20": count / 200, "100": count / 100}, sensitivity=0.3)
    for count in COUNTS
]


def declared(*jobs: dict[str, Any]) -> DeclaredFiles:
    return load([Input("jobs.json", json.dumps([gpu_type(), *jobs]).encode())])


def pressure(problem: Problem, name: str) -> dict[int, float]:
    return dict(problem.jobs[f"lab/{name}"].profiles["v100-16gb"].demand.whole_pressure)


def test_a_job_without_pressure_gets_that_of_jobs_with_layers_like_its_own() -> None:
    files = declared(*MEASURED, job("small", {"conv": 12}), job("large", {"conv": 75}))
    problem = build_problem(files)
    small, large = pressure(problem, "small"), pressure(problem, "large")
    assert 0 < small[20] < small[100] < large[100] <= 1
    assert problem.jobs["lab/large"].profiles["v100-16gb"].demand.most_sensitivity >= 0.29
    found = list_predicted_demands(files.of(Kind.JOB), "lab", "large")
    assert found["v100-16gb"].fields == ("pressure", "sensitivity")
    assert "predicted from its layers, as in 5 jobs" in str(found["v100-16gb"])


def test_what_a_job_states_stays() -> None:
    problem = build_problem(declared(*MEASURED, job("new", {"conv": 30}, pressure=0.9), *[job("plain", None)]))
    assert pressure(problem, "new") == {100: 0.9}
    assert problem.jobs["lab/new"].profiles["v100-16gb"].demand.most_sensitivity > 0
    assert pressure(problem, "plain") == {100: 0.0}
    assert pressure(problem, "known-40") == {20: 0.2, 100: 0.4}


def test_from_two_jobs_nothing_is_predicted() -> None:
    files = declared(*MEASURED[:2], job("new", {"conv": 30}))
    assert pressure(build_problem(files), "new") == {100: 0.0}
    assert list_predicted_demands(files.of(Kind.JOB), "lab", "new") == {}


def test_a_job_that_is_declared_many_times_counts_once() -> None:
    copies = [{**MEASURED[0], "metadata": {"name": f"copy-{at}", "tenant": "lab"}} for at in range(9)]
    found = list_predicted_demands(
        declared(*MEASURED[:3], *copies, job("new", {"conv": 30})).of(Kind.JOB), "lab", "new"
    )
    assert found["v100-16gb"].jobs == 3


def test_both_pressures_are_predicted_where_jobs_state_both() -> None:
    measured = [
        job(
            f"known-{count}", {"conv": count},
            pressure={"compute": count / 100, "bandwidth": {"20": 0.1, "100": 0.2}},
            sensitivity={"compute": 0.3, "bandwidth": 0.1},
        )
        for count in COUNTS
    ]  # fmt: skip
    problem = build_problem(declared(*measured, job("new", {"conv": 30})))
    demand = problem.jobs["lab/new"].profiles["v100-16gb"].demand
    last = dict(demand.pressure)[100]
    assert 0.2 <= last.real <= 0.6
    assert 0.19 <= last.imag <= 0.21
    assert demand.sensitivity.real > demand.sensitivity.imag > 0

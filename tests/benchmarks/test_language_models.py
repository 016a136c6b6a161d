"""Family L: the same from the same seed, read back from its manifests, and planned rightly."""

from __future__ import annotations

import json

import pytest

from app.control.formulate.problem import build_problem
from app.manifests.offline import Input, load
from benchmarks.families import family
from benchmarks.manifests import manifests
from solvers.planning.judge import judge
from solvers.planning.solve import SolveBudget, find

pytestmark = pytest.mark.slow


def test_it_has_language_models_beside_other_services_and_is_read_back_from_its_manifests() -> None:
    problem = family("L", 24, 4, 0)
    assert problem == family("L", 24, 4, 0)
    models = {name for name, service in problem.services.items() if service.tokens}
    assert len(models) == 1
    assert len(problem.services) == 4
    assert {node.gpu_count for node in problem.nodes.values() if "80gb" in node.gpu_type} == {8}
    text = json.dumps(manifests(problem)).encode()
    read = build_problem(load([Input("l.json", text, "json")]))
    (name,) = models
    assert read.services[name] == problem.services[name]
    assert {key: profile.iteration for key, profile in read.profiles.items()} == {
        key: profile.iteration for key, profile in problem.profiles.items()
    }
    assert read.models[problem.services[name].model][0].llm == problem.models[problem.services[name].model][0].llm


def test_its_plan_is_right_and_has_a_bound() -> None:
    problem = family("L", 24, 4, 0)
    plan = find(problem, SolveBudget(None, 2), alone=True).plan
    verdict = judge(problem, plan)
    assert verdict.is_right, verdict.violations
    assert plan.certificate
    assert plan.certificate.bound == pytest.approx(plan.certificate.cost.total, rel=0.5)

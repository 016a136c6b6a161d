"""A variant with a runtime of its own goes only where the node's allow-list admits it, and plans know where that is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agents.contract.admitted import AdmittedEntry
from app.control.domain.snapshot import NodeStatus
from app.control.formulate.own_runtimes import encode_runtimes, list_admitted_names
from app.control.formulate.pose import _less
from app.control.formulate.problem import build_problem
from app.manifests.offline import Input, load
from solvers.planning.problem import Problem
from solvers.planning.runtimes import missing_words
from solvers.planning.solve import SolveBudget, solve
from tests.support.world import gpu_type, model, node, profile, service

OWN = {"command": ["{python}", "/srv/app.py"], "args": ["--port={port}"]}
ENTRY = AdmittedEntry("app", ("{python}", "/srv/app.py", "--port={port}"))
MODELS: dict[str, Any] = {"mine": {"variants": [{"name": "fp16", "accuracy": 1, "runtime": OWN}]}}
NAME = "own:mine/fp16"


def fleet(*, templates: bool) -> Problem:
    there = node("n1", templates=["vllm"]) if templates else node("n1")
    documents = [
        gpu_type(), there, model("mine", **MODELS["mine"]), profile("mine"),
        service("web", "shop", "mine", ratePerSecond=50),
    ]  # fmt: skip
    return build_problem(load([Input("fleet.json", json.dumps(documents).encode(), "json")]))


def test_a_nodes_list_of_templates_says_nothing_of_own_runtimes() -> None:
    """Its allow-list does, and only the node itself reports that."""
    problem = fleet(templates=True)
    (variant,) = problem.models["mine"]
    assert (variant.template, variant.is_own) == (NAME, True)
    assert problem.nodes["n1"].templates == frozenset({"vllm", NAME})
    assert fleet(templates=False).nodes["n1"].templates is None


def test_a_node_offers_the_runtimes_that_its_entries_admit() -> None:
    own = encode_runtimes(MODELS)
    assert list_admitted_names(own, (ENTRY,)) == [NAME]
    assert list_admitted_names(own, (AdmittedEntry("other", ("{python}", "/srv/other.py")),)) == []
    assert list_admitted_names(own, ()) == []
    node_there = fleet(templates=True).nodes["n1"]
    told = NodeStatus("n1", "reporting", templates=("triton",), admitted=(ENTRY,))
    assert _less(node_there, (0,), told, (), own).templates == frozenset({NAME})
    silent = replace(told, admitted=())
    assert _less(node_there, (0,), silent, (), own).templates == frozenset()
    assert _less(replace(node_there, templates=None), (0,), told, (), own).templates == frozenset({"triton", NAME})


@pytest.mark.slow
def test_a_service_is_unserved_where_no_node_admits_it_and_the_reason_says_so() -> None:
    problem = fleet(templates=True)
    nodes = {"n1": replace(problem.nodes["n1"], templates=frozenset({"vllm"}))}
    plan = solve(replace(problem, nodes=nodes), SolveBudget(work=200))
    (left,) = plan.unserved
    assert "no usable node of v100-16gb admits the own runtime of mine/fp16" in left.reason
    served = solve(problem, SolveBudget(work=200))
    assert not served.unserved
    assert missing_words(["vllm", NAME]) == "offers the template vllm or admits the own runtime of mine/fp16"

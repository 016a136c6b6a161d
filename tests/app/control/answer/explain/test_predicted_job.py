"""Explaining a job whose pressure was predicted from its layers says so."""

from __future__ import annotations

from dataclasses import replace

from app.control.answer.explain.question import Explain
from app.control.domain.snapshot import DeclaredObject, JobProgress
from app.control.formulate.pose import pose
from app.control.solve.orders import Solve, solve_order
from tests.app.control.answer.whatif.worlds import snapshot


def training(name: str, convolutions: int, **fields: object) -> DeclaredObject:
    profile = {"stepsPerSecond": {"20": 1.0, "100": 3.0}, "memoryGib": 2, "layers": {"conv": convolutions}, **fields}
    return DeclaredObject("Job", "lab", name, {"type": "training", "steps": 1000, "profiles": {"v100": profile}})


def test_what_was_predicted_is_marked() -> None:
    known = [training(f"known-{n}", n, pressure=n / 100, sensitivity=0.2) for n in (10, 30, 50, 70)]
    small = snapshot(search=300.0)
    jobs = (*known, training("new", 40))
    world = replace(
        small,
        declared=tuple(sorted((*small.declared, *jobs), key=lambda each: (each.kind, each.tenant, each.name))),
        jobs={f"lab/{each.name}": JobProgress() for each in jobs},
    )
    plan = solve_order(Solve(pose(world).problem, None, 2), alone=True).plan
    assert plan
    answer = Explain(world, plan, "job", "lab/new").answered()
    assert answer["predicted"] == {"v100": ["pressure", "sensitivity"]}
    assert "on v100: pressure and sensitivity predicted from its layers, as in 4 jobs" in "\n".join(answer["sentences"])
    stated = Explain(world, plan, "job", "lab/known-10").answered()
    assert stated["predicted"] == {}

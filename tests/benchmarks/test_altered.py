"""A problem may be billed in another way, or have moved rates, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from app.control.formulate.problem import build_problem
from app.manifests.model import Kind
from app.manifests.offline import DeclaredFiles, load
from benchmarks.altered import move_rates, set_pricing

FLEET = Path(__file__).parents[2] / "examples" / "fleet.yaml"


@pytest.mark.parametrize("pricing", ["gpu", "node", "share"])
def test_another_pricing_is_what_its_policy_would_declare(pricing: Literal["gpu", "node", "share"]) -> None:
    declared = load([FLEET])
    again = {
        key: replace(manifest, spec={**manifest.spec, "pricing": pricing}) if key.kind is Kind.POLICY else manifest
        for key, manifest in declared.manifests.items()
    }
    problem = build_problem(declared)
    assert set_pricing(problem, pricing) == build_problem(DeclaredFiles(again))
    assert set_pricing(set_pricing(problem, "node"), pricing) == set_pricing(problem, pricing)


def test_moved_rates_are_the_same_for_a_seed_and_differ_by_service() -> None:
    problem = build_problem(load([FLEET]))
    moved = move_rates(problem, 3)
    factors = {
        name: service.rate_per_second / problem.services[name].rate_per_second
        for name, service in moved.services.items()
    }
    assert all(0.7 <= factor <= 1.3 for factor in factors.values())
    assert len(set(factors.values())) == len(factors)
    assert moved == move_rates(problem, 3) != move_rates(problem, 4)
    assert moved.change_rates({name: s.rate_per_second for name, s in problem.services.items()}) == problem

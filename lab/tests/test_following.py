"""Following risen rates where room is short gives up no more than was there."""

from __future__ import annotations

from app.control.formulate.problem import build_problem
from app.manifests.uncertain import MEAN_QUANTILE
from lab.evaluate import testbeds
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance
from solvers.planning.replan.replanner import Replanner

RATES = {
    "classify-small": 300.0, "detect-small": 100.0, "detect-large": 252.7, "classify-medium": 62.5,
    "classify-large": 62.5, "answer": 25.0, "generate": 10.0,
}  # fmt: skip
RUNNING = (  # node, GPU, service, variant, batch, SM%, requests a second
    ("a100-1", 0, "answer", "base", 1, 16, 25.0), ("a100-1", 0, "detect-large", "5x", 1, 84, 36.3),
    ("a100-1", 1, "classify-small", "resnet18", 4, 16, 300.0), ("a100-1", 1, "detect-large", "5x", 1, 84, 46.4),
    ("a100-1", 2, "detect-large", "5x", 1, 100, 52.0), ("a100-1", 3, "detect-small", "5n", 4, 20, 100.0),
    ("a100-1", 4, "detect-large", "5x", 1, 100, 52.0), ("a30-1", 0, "classify-medium", "resnet50", 4, 20, 62.5),
    ("a30-1", 0, "detect-large", "5x", 1, 80, 8.0), ("a30-1", 1, "detect-large", "5x", 1, 100, 11.0),
    ("rtx4090-1", 0, "classify-large", "resnet152", 4, 20, 62.5), ("rtx4090-1", 0, "detect-large", "5x", 1, 44, 47.0),
    ("rtx4090-1", 0, "generate", "xl", 1, 36, 10.0),
)  # fmt: skip


def test_a_service_keeps_its_gpu_where_one_of_the_same_model_wants_it_for_less() -> None:
    """detect-small has a GPU nearly for itself; detect-large may not run beside it, and would serve 52/s there."""
    problem = build_problem(
        testbeds.testbed("oltunes", {f"serving/{name}": rate for name, rate in RATES.items()}), MEAN_QUANTILE
    )
    lines = []
    for node, gpu, service, variant, batch, sm, rate in RUNNING:
        profile = problem.profile(f"serving/{service}", variant, node)
        assert profile
        clock = max(problem.type_of(node).clocks_mhz)
        memory = profile.memory_gib[batch]
        lines.append(
            Instance(
                f"{service}-{node}-{gpu}", f"serving/{service}", node, gpu, variant, batch, 0.0, sm, memory, clock, rate
            )
        )
    replanner = Replanner.of(problem, Plan(tuple(lines)))
    replanner.change({"serving/detect-large": 319.8, "serving/detect-small": 166.7})
    unserved = {entry.service: entry.rate_per_second for entry in replanner.plan.unserved}
    assert unserved.keys() == {"serving/detect-large"} and unserved["serving/detect-large"] < 75

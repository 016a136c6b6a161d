"""Names the problems that are too large for the exact model, and what it leaves out."""

from __future__ import annotations

from solvers.planning.beside import has_language_models
from solvers.planning.problem import Problem

MOST_GPUS = 8
MOST_SERVICES = 6
MOST_CHOICES = 12_000  # of a shape for an instance on a GPU


class TooLarge(Exception):
    """The exact check does not take a problem of this size."""


def refuse_large(problem: Problem) -> None:
    """Raises TooLarge with the size that is over its limit."""
    gpus = sum(node.gpu_count for node in problem.nodes.values())
    for count, most, noun in ((gpus, MOST_GPUS, "GPUs"), (len(problem.services), MOST_SERVICES, "services")):
        if count > most:
            raise TooLarge(f"{count} {noun}; the exact check takes at most {most}")
    if has_language_models(problem):
        raise TooLarge("a language model; the exact check takes services that promise a latency")
    divided = [name for name, service in problem.services.items() if service.cells is not None]
    if divided:
        raise TooLarge(f"{divided[0]} is a part of a divided service; the exact check takes whole fleets")


def refuse_choices(count: int) -> None:
    """Raises TooLarge if the model would have too many choices."""
    if count > MOST_CHOICES:
        raise TooLarge(
            f"{count} shapes on all GPUs; the exact check takes at most {MOST_CHOICES}: fewer batches or SM%, or GPUs"
        )


def left_out(problem: Problem) -> list[str]:
    """Returns what the model leaves out; its bound stays true, since each of these can only add cost."""
    found = []
    if problem.jobs:
        found.append("jobs")
    if problem.state and problem.state.running:
        found.append("the churn of a plan that runs")
    if any(profile.demand.sensitivity.imag for profile in problem.profiles.values()):
        found.append("pressure on bandwidth")
    if problem.policy.energy_price_per_kwh:
        found.append("the energy of busy GPUs")
    if problem.policy.power_budget_w is not None:
        found.append("powerBudgetW")
    return found

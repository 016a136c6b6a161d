"""The heuristic for many models: each joins the GPU where it adds most worth, then models move while it helps."""

from __future__ import annotations

from solvers.inss.throughput import subsets
from solvers.inss.throughput.problem import ServedModel, ThroughputModel, ThroughputProblem

MOST_TOGETHER = 4  # five SM shares and more have too many splits for a heuristic


class _Fillings:
    """Caches the best filling of every (type, set)."""

    def __init__(self, problem: ThroughputProblem) -> None:
        self.problem = problem
        self._known: dict[tuple[str, frozenset[str]], subsets.Filling | None] = {}

    def ordered(self, names: frozenset[str]) -> tuple[ThroughputModel, ...]:
        return tuple(self.problem.by_name[name] for name in sorted(names))

    def of(self, gpu_type: str, names: frozenset[str]) -> subsets.Filling | None:
        if len(names) > MOST_TOGETHER:
            return None
        key = (gpu_type, names)
        if key not in self._known:
            self._known[key] = subsets.best(self.problem, self.problem.type_of[gpu_type], self.ordered(names))
        return self._known[key]


def solve(problem: ThroughputProblem, rounds: int = 20) -> dict[str, ServedModel]:
    """Returns a valid answer; a model that fits on no GPU with the others is left out."""
    fillings = _Fillings(problem)
    here: list[frozenset[str]] = [frozenset() for _ in problem.places]
    order = sorted(problem.models, key=lambda model: (-model.rate_per_second, model.name))
    for model in order:
        _join(problem, fillings, here, model.name)
    for _ in range(rounds):
        before = list(here)
        for model in order:
            place = next((g for g, names in enumerate(here) if model.name in names), None)
            if place is not None:
                here[place] -= {model.name}
            _join(problem, fillings, here, model.name)
        if here == before:
            break
    answer: dict[str, ServedModel] = {}
    for (gpu_type, gpu), names in zip(problem.places, here, strict=True):
        filling = fillings.of(gpu_type, names)
        assert filling is not None
        for model, (percent, batch) in zip(fillings.ordered(names), filling.shapes, strict=True):
            answer[model.name] = ServedModel(gpu_type, gpu, percent, batch)
    return answer


def _join(problem: ThroughputProblem, fillings: _Fillings, here: list[frozenset[str]], name: str) -> None:
    """Puts a model on the GPU whose worth grows most with it, if any has room."""
    gains = []
    for place, names in enumerate(here):
        gpu_type = problem.places[place][0]
        before, after = fillings.of(gpu_type, names), fillings.of(gpu_type, names | {name})
        if before is not None and after is not None:
            gains.append((after.worth - before.worth, -place))
    if gains:
        here[-max(gains)[1]] |= {name}

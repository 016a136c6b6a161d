"""The heuristic for many models: each joins the GPU where it adds most worth, then models move while it helps."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable
from math import inf
from typing import TypeAlias

from solvers.inss.throughput import subsets
from solvers.inss.throughput.problem import ServedModel, ThroughputModel, ThroughputProblem

Likes: TypeAlias = tuple[int, ...]  # what runs on a GPU, by the numbers of models that are alike
MOST_TOGETHER = 4  # five SM shares and more have too many splits for a heuristic


class _Fillings:
    """Caches the best filling of every (type, set). Models that differ in their names alone count as one."""

    def __init__(self, problem: ThroughputProblem) -> None:
        self.problem = problem
        numbers: dict[object, int] = {}
        self.like = {m.name: numbers.setdefault(subsets.likeness(m), len(numbers)) for m in problem.models}
        self._known: dict[tuple[str, Likes], subsets.Filling | None] = {}

    def ordered(self, names: frozenset[str]) -> tuple[ThroughputModel, ...]:
        return tuple(self.problem.by_name[name] for name in sorted(names))

    def likes(self, names: Iterable[str]) -> Likes:
        return tuple(self.like[name] for name in sorted(names))

    def of(self, gpu_type: str, names: frozenset[str]) -> subsets.Filling | None:
        if len(names) > MOST_TOGETHER:
            return None
        key = (gpu_type, self.likes(names))
        if key not in self._known:
            self._known[key] = subsets.best(self.problem, self.problem.type_of[gpu_type], self.ordered(names))
        return self._known[key]


class _Board:
    """The models on each GPU. Of GPUs that run the same, the first stands for all."""

    def __init__(self, problem: ThroughputProblem, fillings: _Fillings) -> None:
        self.problem, self._fillings = problem, fillings
        self.here: list[frozenset[str]] = [frozenset() for _ in problem.places]
        self._place_of: dict[str, int] = {}
        self._alike: dict[str, dict[Likes, list[int]]] = defaultdict(dict)  # by type and what runs there; rising
        for place, (gpu_type, _) in enumerate(problem.places):
            self._alike[gpu_type].setdefault((), []).append(place)
        self._gains: dict[tuple[str, Likes, int], float] = {}

    def take_away(self, name: str) -> None:
        place = self._place_of.pop(name, None)
        if place is not None:
            self._set(place, self.here[place] - {name})

    def join(self, name: str) -> None:
        """Puts a model on the GPU whose worth grows most with it, if any has room.

        No GPU gains more than an idle one of its type: neighbours only slow a model, and it slows them.
        """
        like, best = self._fillings.like[name], (-inf, 0)
        alone = {gpu_type: self._gain(gpu_type, (), name, like) for gpu_type in self._alike}
        for gpu_type in sorted(self._alike, key=lambda gpu_type: -alone[gpu_type]):
            for likes, places in self._alike[gpu_type].items():
                if alone[gpu_type] < best[0]:
                    break
                best = max(best, (self._gain(gpu_type, likes, name, like), -places[0]))
        if best[0] > -inf:
            place = self._place_of[name] = -best[1]
            self._set(place, self.here[place] | {name})

    def _gain(self, gpu_type: str, likes: Likes, name: str, like: int) -> float:
        key = (gpu_type, likes, like)
        if (gain := self._gains.get(key)) is None:
            places = self._alike[gpu_type].get(likes)
            names = self.here[places[0]] if places else frozenset[str]()
            before, after = self._fillings.of(gpu_type, names), self._fillings.of(gpu_type, names | {name})
            gain = self._gains[key] = -inf if before is None or after is None else after.worth - before.worth
        return gain

    def _set(self, place: int, names: frozenset[str]) -> None:
        alike, before, after = self._alike[self.problem.places[place][0]], self.here[place], names
        then, now = self._fillings.likes(before), self._fillings.likes(after)
        alike[then].remove(place)
        if not alike[then]:
            del alike[then]
        insort(alike.setdefault(now, []), place)
        self.here[place] = names


def solve(problem: ThroughputProblem, rounds: int = 20) -> dict[str, ServedModel]:
    """Returns a valid answer; a model that fits on no GPU with the others is left out."""
    fillings = _Fillings(problem)
    board = _Board(problem, fillings)
    order = sorted(problem.models, key=lambda model: (-model.rate_per_second, model.name))
    for model in order:
        board.join(model.name)
    for _ in range(rounds):
        before = list(board.here)
        for model in order:
            board.take_away(model.name)
            board.join(model.name)
        if board.here == before:
            break
    answer: dict[str, ServedModel] = {}
    for (gpu_type, gpu), names in zip(problem.places, board.here, strict=True):
        filling = fillings.of(gpu_type, names)
        assert filling is not None
        for model, (percent, batch) in zip(fillings.ordered(names), filling.shapes, strict=True):
            answer[model.name] = ServedModel(gpu_type, gpu, percent, batch)
    return answer

"""Gives the new instances of a plan names that no other instance has, running or new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from copy import copy
from itertools import count

from solvers.planning.problem import Instance, Place, Problem


class NewNames:
    """The names of all instances so far, running and new."""

    def __init__(self, problem: Problem, seats: Iterable[Instance] = ()) -> None:
        running = problem.state.running if problem.state else ()
        self._taken = {line.id for line in (*running, *seats)}
        self._made: Counter[str] = Counter()

    def copy(self) -> NewNames:
        """Returns the same, to name instances for trial."""
        names = copy(self)
        names._taken, names._made = set(self._taken), Counter(self._made)
        return names

    def numbered(self, service: str) -> str:
        """Returns a name by the number of the service's new instances."""
        while True:
            self._made[service] += 1
            name = f"{service}/new-{self._made[service]}"
            if name not in self._taken:
                self._taken.add(name)
                return name

    def at(self, service: str, place: Place) -> str:
        """Returns a name by the GPU of the instance, with a number if that name is taken."""
        name = f"{service}/new-{place[0]}-{place[1]}"
        found = next(each for n in count(1) if (each := name if n == 1 else f"{name}-{n}") not in self._taken)
        self._taken.add(found)
        return found

"""The items of a GPU for the exact search: each a service at an SM%, with the batches and loads that keep its SLO.

Morak's models are saturated. A service has a rate instead: an instance that is busy for a part of the time keeps its
SLO with a longer batch, so each batch is offered at several loads, each with the longest time that admits it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solvers.morak.power.knees import share_at_knee
from solvers.morak.power.options import PowerTables
from solvers.planning.fleet.offers import GpuPool, read_offers
from solvers.planning.judge.readings import value_at
from solvers.planning.problem import GpuType, PlacedJob, Problem, Service

Numbers: TypeAlias = NDArray[np.float64]
LOAD_STEPS = 8  # of the policy's utilization; the lowest of them is left out
SAFE_SHARE = 1e-6  # of a batch's time
JOB_MS = 1e-9  # a job keeps no SLO


@dataclass(frozen=True, slots=True, order=True)
class MorakItem:
    """A service's variant at an SM%, or a job at its own."""

    name: str
    variant: str
    sm_percent: int

    @property
    def key(self) -> str:
        return f"{self.name} {self.variant}"


@dataclass(frozen=True, slots=True)
class _Row:
    exec_ms: Numbers  # by column, as a share of the longest that its load admits
    memory_gib: Numbers
    pressure: float
    sensitivity: float
    worth: Numbers  # by column, of a batch that takes the longest time
    slower: Numbers  # by clock
    power_w: Numbers


def price_weight(service: Service) -> float:
    """Returns the worth of a request a second, as the judge prices what is unserved."""
    return service.unserved_weight * service.priority / 100


class MorakItems:
    """The rows of all items of a pool of GPUs; they are computed once."""

    def __init__(self, problem: Problem, pool: GpuPool) -> None:
        self.problem, self.pool = problem, pool
        self.type: GpuType = pool.type_in(problem)
        self.profiles = {
            (service.name, profile.variant): profile
            for service in problem.services.values()
            for profile in read_offers(problem).find_profiles(service, pool)
        }
        batches = {batch for profile in self.profiles.values() for batch in profile.latency_ms}
        self.batches = sorted(batches) or [1]  # a job needs a column, also where no service has a profile
        policy = problem.policy
        self._loads = [policy.utilization * step / LOAD_STEPS for step in range(LOAD_STEPS, 1, -1)]
        self._column = np.repeat(np.array(self.batches, np.int64), len(self._loads))
        self._rows: dict[MorakItem, _Row] = {}
        self._clocks = np.array(self.type.clocks_mhz) / self.type.top_clock_mhz

    @cached_property
    def knees(self) -> Mapping[str, tuple[MorakItem, ...]]:
        """Returns each service at the knees of its smallest and its largest batch (K1)."""
        return {name: items for name in self.problem.services if (items := self._list_items(name, only_knees=True))}

    @cached_property
    def shares(self) -> Mapping[str, tuple[MorakItem, ...]]:
        """Returns each service at the knees of all batches and at every SM% that was measured."""
        return {name: items for name in self.problem.services if (items := self._list_items(name, only_knees=False))}

    @cached_property
    def least_percents(self) -> Mapping[str, int]:
        """Returns the fewest SM% of each service."""
        return {
            name: min(item.sm_percent for item in (*items, *self.knees.get(name, ())))
            for name, items in self.shares.items()
        }

    def _list_items(self, name: str, *, only_knees: bool) -> tuple[MorakItem, ...]:
        service = self.problem.services[name]
        found: list[tuple[float, tuple[MorakItem, ...]]] = []
        for variant in service.variants:
            profile = self.profiles.get((name, variant))
            if profile is None:
                continue
            curves = [profile.latency_ms[batch] for batch in sorted(profile.latency_ms)]
            points = {share_at_knee(curve) for curve in ((curves[0], curves[-1]) if only_knees else curves)}
            if not only_knees:
                points |= {sm for sm, _ in curves[0]}
            if service.is_dedicated:
                points = {curves[0][-1][0]}
            items = tuple(MorakItem(name, variant, sm) for sm in sorted(points))
            per_share = self.tables(items, {name: inf}).best_alone().max(axis=1) / [item.sm_percent for item in items]
            if per_share.max() > 0:
                found.append((float(per_share.max()), items))
        return max(found, key=lambda entry: entry[0])[1] if found else ()

    def sort_by_worth(self, items: Sequence[MorakItem], wanted: Mapping[str, float]) -> list[MorakItem]:
        """Returns the items of most worth for an SM% alone first: a search that begins with them ends sooner."""
        if not items:
            return []
        shares = [item.sm_percent for item in items]
        worth = self.tables(items, wanted).best_alone().max(axis=1) / shares
        return [items[number] for number in np.argsort(-worth, kind="stable").tolist()]

    def tables(
        self, items: Sequence[MorakItem], wanted: Mapping[str, float], jobs: Sequence[PlacedJob] = ()
    ) -> PowerTables:
        """Returns the items and then the jobs; a service's worth ends at its wanted rate."""
        rows = [self._row(item) for item in items] + [self._job(job) for job in jobs]
        entries = [*items, *(MorakItem(job.job, "", job.sm_percent) for job in jobs)]
        keys = {key: number for number, key in enumerate(dict.fromkeys(entry.key for entry in entries))}
        models = {name: number for number, name in enumerate(dict.fromkeys(map(self._model, entries)))}
        services = self.problem.services
        most = [
            price_weight(services[entry.name]) * wanted.get(entry.name, 0.0) if entry.name in services else 0.0
            for entry in entries
        ]
        columns = len(self._column)
        return PowerTables(
            gpu_type=self.type,
            models=tuple(keys),
            model=np.array([keys[entry.key] for entry in entries], np.int64),
            share=np.array([entry.sm_percent for entry in entries], np.int64),
            batch=self._column,
            exec_ms=np.array([row.exec_ms for row in rows]).reshape(-1, columns),
            memory_gib=np.array([row.memory_gib for row in rows]).reshape(-1, columns),
            pressure=np.array([row.pressure for row in rows], np.float64),
            sensitivity=np.array([row.sensitivity for row in rows], np.float64),
            limit_ms=np.ones(len(rows)),
            batch_worth=np.array([row.worth for row in rows]).reshape(-1, columns),
            most_worth=np.array(most, np.float64),
            slower=np.array([row.slower for row in rows]).reshape(-1, len(self._clocks)),
            power_w=np.array([row.power_w for row in rows]).reshape(-1, len(self._clocks)),
            kind=np.array([models[self._model(entry)] for entry in entries], np.int64),
            most_alike=self.problem.policy.same_model_per_gpu,
        )

    def _model(self, item: MorakItem) -> str:
        service = self.problem.services.get(item.name)
        return f"model {service.model}" if service and item.variant else f"job {item.name}"

    def _row(self, item: MorakItem) -> _Row:
        if item not in self._rows:
            self._rows[item] = self._made(item)
        return self._rows[item]

    def _made(self, item: MorakItem) -> _Row:
        service, profile = self.problem.services[item.name], self.profiles[item.name, item.variant]
        demand, policy, sm = profile.demand, self.problem.policy, item.sm_percent
        pressure, feels = value_at(demand.whole_pressure, sm), demand.most_sensitivity
        unused = policy.share_pressure * (100 - sm) / 100 if policy.pricing == "share" else 0.0
        alone = np.full(len(self.batches), inf)
        memory = np.full(len(self.batches), inf)
        for place, batch in enumerate(self.batches):
            curve = profile.latency_ms.get(batch)
            if curve and curve[0][0] <= sm <= curve[-1][0]:
                alone[place] = value_at(curve, sm) * (1 + feels * unused)
                memory[place] = profile.memory_gib[batch]
        longest = read_offers(self.problem).find_longest_ms(service, self.batches, self._loads) * (1 - SAFE_SHARE)
        steps = len(self._loads)
        loads = np.tile(np.array(self._loads), len(self.batches))
        with np.errstate(divide="ignore", invalid="ignore"):
            exec_ms = np.where(longest > 0, np.repeat(alone, steps) / longest, inf)
            worth = np.where(longest > 0, price_weight(service) * loads * self._column * 1000 / longest, 0.0)
        return _Row(
            exec_ms, np.repeat(memory, steps), pressure, feels, worth, (1 / self._clocks) ** demand.clock_exponent,
            value_at(demand.power_w, sm) * self._clocks**demand.power_exponent,
        )  # fmt: skip

    def _job(self, placed: PlacedJob) -> _Row:
        profile = self.problem.jobs[placed.job].profiles[self.type.name]
        demand, sm, columns = profile.demand, placed.sm_percent, len(self._column)
        memory = np.full(columns, inf)
        memory[0] = placed.memory_gib
        return _Row(
            np.full(columns, JOB_MS), memory, value_at(demand.whole_pressure, sm), 0.0, np.zeros(columns),
            np.ones(len(self._clocks)), value_at(demand.power_w, sm) * self._clocks**demand.power_exponent,
        )  # fmt: skip

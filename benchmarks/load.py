"""Scales rates to a load: the cost of the resource LP for a fleet's services over the price of the whole fleet.

The resource LP buys GPUs in fractions, in classes (GPU type, pressure level): a class's GPUs hold residents whose
pressure adds up to at most its level, and every resident is slowed as if it did.

    minimise    sum of price x gpus
    so that     sum of x over a service's columns                        = 1
                sum of x rate / accepted / floor(100 / SM%) (per class) <= gpus
                sum of x rate / accepted x memory / memory of the GPU   <= gpus
                sum of x rate / accepted x pressure                     <= gpus x level
                sum of gpus over a type's levels                        <= GPUs of the type
                sum of x rate / accepted over a model's services        <= GPUs of the type x sameModelPerGpu

A column is (service, class, SM%, variant) at its best batch; `accepted` is the largest rate an instance may have.
The LP's cost grows with the rates, so the scale at which it costs a given part of the fleet is an LP, too: the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from benchmarks.columns import LEVELS, Columns, Floats, Ints, columns
from solvers.planning.problem import Problem, Service

TOLERANCE_SHARE = 0.005  # of the scale
MOST_ROUNDS = 60
MOST_GROUPS = 400  # above as many services, those most alike are scaled together


class NotSolved(RuntimeError):
    """The resource LP of a family found no answer."""


@dataclass(frozen=True, slots=True)
class GpuStock:
    """GPUs by type, the money for them, and the instances of a model that a GPU takes."""

    count: Floats
    price: Floats
    money: float
    alike: int


@dataclass(frozen=True, slots=True)
class LoadOptimum:
    """The largest scale, and the LP's prices: of a service, and by class of SMs, memory and pressure."""

    scale: float
    parts: Floats  # by column
    price: Floats
    by_class: Floats  # [3, classes]
    by_model: Floats  # [models, types]: of a GPU without the model

    def worth(self, pool: Columns, model: Ints) -> Floats:
        """Returns what each column takes, at the prices."""
        sm, memory, pressure = self.by_class[:, pool.kind]
        found: Floats = sm * pool.sm + memory * pool.memory + pressure * pool.pressure
        found += self.by_model[model[pool.service], pool.gpu_type] * pool.instances
        return found


@dataclass(frozen=True, slots=True)
class LoadScale:
    """The factor of every rate for the wanted load, and the watts above idle that the optimum draws."""

    scale: float
    watts: float


def scale_to_load(problem: Problem, load: float) -> LoadScale:
    """Returns the scale at which the LP's cost is `load` x the fleet's price."""
    types = sorted(problem.gpu_types)
    count, price = np.zeros(len(types)), np.ones(len(types))
    for node in problem.nodes.values():
        count[types.index(node.gpu_type)] += node.gpu_count
        price[types.index(node.gpu_type)] = node.price_per_hour
    fleet = GpuStock(count, price, load * float(count @ price), problem.policy.same_model_per_gpu)
    services, group = _alike(problem)
    names = sorted(problem.models)
    model = np.zeros(group.max() + 1, dtype=np.int64)
    model[group] = [names.index(service.model) for service in services]
    single = columns(problem, services, types)
    pool = single.gathered(group)
    naive = np.maximum(pool.sm, np.maximum(pool.memory, pool.pressure / pool.level)) * price[pool.gpu_type]
    by_type = pool.service * len(types) + pool.gpu_type
    # every class needs columns of some service, or its prices mean nothing
    some = np.where(pool.service % 5 == 0, naive, np.inf)
    chosen = np.union1d(_least(naive, by_type), _least(some, pool.service * len(types) * len(LEVELS) + pool.kind))
    for _ in range(MOST_ROUNDS):
        found = _largest(pool.some(chosen), model, fleet)
        worth = found.worth(pool, model)
        better = _least(worth, by_type)
        better = better[worth[better] < found.price[pool.service[better]] * (1 - 1e-9)]
        # Prices of services lowered to their least worth are right for the whole LP: they bound the scale from above.
        if not len(better) or worth[_least(worth, pool.service)].sum() >= 1 - TOLERANCE_SHARE:
            return LoadScale(found.scale, float(found.parts @ pool.watts[chosen]))
        chosen = np.union1d(chosen, better)
    raise NotSolved(f"the resource LP is not within {TOLERANCE_SHARE:.1%} of its optimum after {MOST_ROUNDS} rounds")


def _alike(problem: Problem) -> tuple[list[Service], Ints]:
    """Returns the services by model, SLO and name, and their group: neighbours in that order."""

    def rule(service: Service) -> tuple[str, tuple[str, ...], tuple[str, ...], float]:
        return (service.model, service.variants, service.gpu_types or (), service.percentile)

    services = sorted(problem.services.values(), key=lambda service: (rule(service), service.slo_ms, service.name))
    size = -(-len(services) // MOST_GROUPS)
    group: list[int] = []
    for _, members in groupby(services, key=rule):
        first = group[-1] + 1 if group else 0
        group += [first + index // size for index, _ in enumerate(members)]
    return services, np.array(group)


def _least(worth: Floats, group: Ints) -> Ints:
    """Returns the column of least worth in each group."""
    order = np.lexsort((worth, group))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = group[order][1:] != group[order][:-1]
    order = order[first]
    return np.asarray(order[np.isfinite(worth[order])])


def _largest(pool: Columns, model: Ints, fleet: GpuStock) -> LoadOptimum:
    """Solves the LP over these columns: the largest scale that costs no more than the money."""
    from scipy.optimize import linprog  # takes a fifth of a second, which only a drawn load needs
    from scipy.sparse import coo_array

    n, types, levels = len(pool.service), len(fleet.count), len(LEVELS)
    kinds, services, models = types * levels, len(model), int(model.max()) + 1
    at, kind = np.arange(n), np.arange(kinds)
    gpus, scale = n + kind, n + kinds
    entries = [
        (pool.kind, at, pool.sm),
        (kind, gpus, np.full(kinds, -1.0)),
        (kinds + pool.kind, at, pool.memory),
        (kinds + kind, gpus, np.full(kinds, -1.0)),
        (2 * kinds + pool.kind, at, pool.pressure),
        (2 * kinds + kind, gpus, -np.tile(LEVELS, types)),
        (3 * kinds + kind // levels, gpus, np.ones(kinds)),
        (np.full(kinds, 3 * kinds + types), gpus, np.repeat(fleet.price, levels)),
        (3 * kinds + types + 1 + model[pool.service] * types + pool.gpu_type, at, pool.instances),
    ]
    rows, cols, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    upper = coo_array((values, (rows, cols)), shape=(3 * kinds + types + 1 + models * types, scale + 1))
    limits = np.concatenate(
        [np.zeros(3 * kinds), fleet.count, [fleet.money], np.tile(fleet.alike * fleet.count, models)]
    )
    rows = np.concatenate([pool.service, np.arange(services)])
    cols = np.concatenate([at, np.full(services, scale)])
    values = np.concatenate([np.ones(n), -np.ones(services)])
    equal = coo_array((values, (rows, cols)), shape=(services, scale + 1))
    aim = np.zeros(scale + 1)
    aim[scale] = -1.0
    found = linprog(aim, upper.tocsr(), limits, equal.tocsr(), np.zeros(services), method="highs")
    if found.status != 0:
        raise NotSolved(f"the resource LP ended with: {found.message}")
    by_class = -found.ineqlin.marginals[: 3 * kinds].reshape(3, kinds)
    by_model = -found.ineqlin.marginals[3 * kinds + types + 1 :].reshape(models, types)
    return LoadOptimum(float(found.x[scale]), found.x[:n], found.eqlin.marginals, by_class, by_model)

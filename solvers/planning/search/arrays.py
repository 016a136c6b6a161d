"""The named tuples of arrays that compiled loops read and write, and the types of their signatures."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from solvers.planning.fleet.grids import SM, Floats, Ints
from solvers.planning.pressures import Pressures
from solvers.planning.problem import GpuType
from solvers.planning.search.tables import Tables

MOST_RESIDENTS = 48


class TableArrays(NamedTuple):
    """The tables as every loop reads them."""

    rate: Floats
    slo_ms: Floats
    percentile_row: Ints
    unserved_price: Floats
    most_rate: Floats  # one instance of the service carries this at most
    dedicated: Ints
    apart: Ints  # 1 if its instances must run on different GPUs
    loads: Floats
    batches: Floats
    exec_ms: Floats
    memory_gib: Floats
    pressure: Pressures
    power_w: Floats
    sensitivity: Pressures
    clock_exponent: Floats
    power_exponent: Floats
    cpu_cores: Floats
    host_memory_gib: Floats
    offer_service: Ints
    offer_profile: Ints
    offer_group: Ints
    service_group: Ints  # [service, site] -> group, -1 where it has no offer
    service_start: Ints  # [services + 1] into service_offers
    service_offers: Ints  # every offer, service by service
    site_start: Ints
    group_start: Ints
    site_group: Ints
    site_memory_gib: Floats
    site_idle_w: Floats
    site_max_w: Floats
    site_clocks: Floats  # [site, clock]: highest clock / clock, the highest first; 0 beyond the last
    service_tenant: Ints
    utilization: float
    margin: float
    watt_price: float  # an hour, of a busy watt: its energy, and what it is worth under a budget of watts
    energy_price: float  # an hour, of a watt
    share_pressure: float  # 0 unless shares are priced
    same_model: int
    most_clients: int


class Board(NamedTuple):
    """A plan in the making: the residents of each GPU, and what is left of each node."""

    pool: Ints  # of each GPU
    node: Ints  # of each GPU
    clock: Floats  # of each GPU: highest clock / its clock
    count: Ints  # residents of each GPU
    offer: Ints  # [GPU, slot]
    sm: Ints
    batch: Ints  # index into batches
    cap: Floats  # requests a second it may carry
    cpu: Floats  # cores left of each node
    host: Floats  # host memory left of each node
    cover: Floats  # sum of caps of each service


class Home(NamedTuple):
    """What runs on each GPU now, and what it costs an hour to start something there or to give it another share."""

    count: Ints
    offer: Ints  # [GPU, slot]
    sm: Ints
    sm_price: Floats  # of each GPU, for a SM%; 0 where nothing runs yet
    price: float  # for each change


def no_home(gpus: int) -> Home:
    """Returns that of a fleet in which nothing runs yet: changes cost nothing."""
    none = np.zeros((1, 1), dtype=np.int64)
    return Home(np.zeros(gpus, dtype=np.int64), none, none, np.zeros(gpus), 0.0)


def world(t: Tables) -> TableArrays:
    """Makes the loops' arrays of the tables."""
    groups = np.repeat(np.arange(len(t.group_start) - 1), np.diff(t.group_start))
    service_group = np.full((len(t.services), len(t.site_types)), -1, dtype=np.int64)
    sites = np.repeat(np.arange(len(t.site_types)), np.diff(t.site_start))
    service_group[t.offer_service, sites] = groups
    types = list(t.site_types)
    policy = t.problem.policy
    return TableArrays(
        rate=t.rate,
        slo_ms=t.slo_ms,
        percentile_row=t.percentile_row,
        unserved_price=t.unserved_price,
        most_rate=t.rate / t.min_instances,  # even shares: as many instances as are asked for, each with enough
        dedicated=t.is_dedicated.astype(np.int64),
        apart=(t.min_instances > 1).astype(np.int64),
        loads=np.ascontiguousarray(t.loads, dtype=np.float64),
        batches=t.batches.astype(np.float64),
        exec_ms=t.exec_ms,
        memory_gib=t.memory_gib,
        pressure=t.pressure,
        power_w=t.power_w,
        sensitivity=t.sensitivity,
        clock_exponent=t.clock_exponent,
        power_exponent=t.power_exponent,
        cpu_cores=t.cpu_cores,
        host_memory_gib=t.host_memory_gib,
        offer_service=t.offer_service,
        offer_profile=t.offer_profile,
        offer_group=groups.astype(np.int64),
        service_group=service_group,
        service_start=np.searchsorted(np.sort(t.offer_service), np.arange(len(t.services) + 1)).astype(np.int64),
        service_offers=np.argsort(t.offer_service, kind="stable").astype(np.int64),
        site_start=t.site_start,
        group_start=t.group_start,
        site_group=t.site_group,
        site_memory_gib=np.array([kind.memory_gib for kind in types], dtype=np.float64),
        site_idle_w=np.array([kind.idle_w for kind in types], dtype=np.float64),
        site_max_w=np.array([kind.max_w for kind in types], dtype=np.float64),
        site_clocks=_clocks(types),
        service_tenant=t.tenant,
        utilization=float(t.utilization),
        margin=float(t.margin),
        watt_price=policy.energy_price_per_kwh / 1000.0,
        energy_price=policy.energy_price_per_kwh / 1000.0,
        share_pressure=float(policy.share_pressure) if policy.pricing == "share" else 0.0,
        same_model=min(policy.same_model_per_gpu, 100),
        most_clients=min(policy.clients_per_gpu, MOST_RESIDENTS),
    )


def _clocks(types: list[GpuType]) -> Floats:
    found = np.zeros((len(types), max((len(kind.clocks_mhz) for kind in types), default=1)))
    for site, kind in enumerate(types):
        for place, clock in enumerate(reversed(kind.clocks_mhz)):
            found[site, place] = kind.top_clock_mhz / clock
    return found


def empty_board(t: Tables) -> Board:
    """Returns a board of all GPUs of the fleet without residents."""
    number = {name: index for index, name in enumerate(sorted(t.problem.nodes))}
    nodes = [t.problem.nodes[name] for name in sorted(t.problem.nodes)]
    pool = [index for index, pool in enumerate(t.pools) for _ in pool.gpus]
    node = [number[name] for pool in t.pools for name, _ in pool.gpus]
    gpus, services = len(pool), len(t.services)
    return Board(
        pool=np.array(pool, dtype=np.int64),
        node=np.array(node, dtype=np.int64),
        clock=np.ones(gpus),
        count=np.zeros(gpus, dtype=np.int64),
        offer=np.zeros((gpus, MOST_RESIDENTS), dtype=np.int64),
        sm=np.zeros((gpus, MOST_RESIDENTS), dtype=np.int64),
        batch=np.zeros((gpus, MOST_RESIDENTS), dtype=np.int64),
        cap=np.zeros((gpus, MOST_RESIDENTS)),
        cpu=np.array([n.cpu_cores for n in nodes], dtype=np.float64),
        host=np.array([n.host_memory_gib for n in nodes], dtype=np.float64),
        cover=np.zeros(services),
    )


def _type_of(given: type[Any]) -> Any:
    """Returns the compiler's type of a named tuple: from one made of empty arrays."""
    shapes = {
        "loads": 3, "exec_ms": 3, "memory_gib": 2, "pressure": 2, "power_w": 2,
        "service_group": 2, "site_clocks": 2, "offer": 2, "sm": 2, "batch": 2, "cap": 2,
    }  # fmt: skip
    flat = {"offer", "sm", "batch", "cap"}
    values: list[Any] = []
    for name, kind in given.__annotations__.items():
        dims = 1 if name in flat and given is TableArrays else shapes.get(name, 1)
        match getattr(kind, "__forward_arg__", kind):
            case "Floats":
                values.append(np.zeros((1,) * dims))
            case "Pressures":
                values.append(np.zeros((1,) * dims, dtype=np.complex128))
            case "Ints":
                values.append(np.zeros((1,) * dims, dtype=np.int64))
            case "float":
                values.append(0.0)
            case "int":
                values.append(0)
    return numba.typeof(given(*values))


WORLD = _type_of(TableArrays)
BOARD = _type_of(Board)
HOME = _type_of(Home)
I8, F8 = numba.int64, numba.float64
F1, F2, F3 = F8[::1], F8[:, ::1], F8[:, :, ::1]
C16 = numba.complex128
C1 = C16[::1]
I1, I2 = I8[::1], I8[:, ::1]
assert SM == 101

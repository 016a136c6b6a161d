"""The hosts as they fill up: places and removes requests. A policy's scores are cached per kind and host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.baselines.online import kernels
from lab.baselines.online.policies import BestFit, Fragmentation, LeastWaste, Policy
from lab.baselines.online.scarcity import scarcity_by_type
from lab.baselines.online.waste import expected_waste
from lab.baselines.online.workload import GPU_MILLI, GpuRequest, Host, Workload, WrongRequest

MOST_HOLD_BACK = 1e18  # no request wastes as much
PRICED_AFTER_SHARE = 0.01  # of the fleet's GPUs placed or removed; then scarce types are found again


@dataclass(frozen=True, slots=True)
class PlacedRequest:
    """The place of a request: the host and its GPUs."""

    host: str
    gpus: tuple[int, ...]


class OnlineFleet:
    """Hosts under one policy, in the order in which ties are broken. It changes with each placement."""

    def __init__(self, hosts: Sequence[Host], policy: Policy, kinds: Iterable[GpuRequest] = ()) -> None:
        if len({host.name for host in hosts}) != len(hosts):
            raise WrongRequest("two hosts share a name")
        self.hosts = tuple(hosts)
        self._row = {host.name: row for row, host in enumerate(hosts)}
        self._gpus = np.array([host.gpus for host in hosts], dtype=np.int64)
        self._type_bit = {name: 1 << bit for bit, name in enumerate(sorted({host.gpu_type for host in hosts}))}
        self._gpu_types = np.array([self._type_bit[host.gpu_type] for host in hosts], dtype=np.int64)
        sizes = [[host.cpu_milli, host.host_memory_mib] for host in hosts]
        self._host_free = np.array(sizes, dtype=np.int64).reshape(-1, 2)
        widest = max((host.gpus for host in hosts), default=0)
        self._free = np.zeros((len(hosts), max(widest, 1)), dtype=np.int64)
        for row, host in enumerate(hosts):
            self._free[row, : host.gpus] = GPU_MILLI
        self._version = np.zeros(len(hosts), dtype=np.int64)
        self._spare = np.zeros(max(widest, 1), dtype=np.int64)
        self._hold_back = MOST_HOLD_BACK
        self._read(policy)
        self._kind: dict[GpuRequest, int] = {}
        self._kinds = np.zeros((0, 5), dtype=np.int64)
        self._reserve(16)
        for request in kinds:
            self.kind_of(request)

    def _read(self, policy: Policy) -> None:
        """Lays the policy out as arrays; those that it does not use stay empty."""
        self._table = np.zeros(GPU_MILLI + 1)
        self._appetites = np.zeros((0, 2))
        self._scarcity = np.zeros(len(self.hosts))
        self._typed_mix: Workload | None = None
        self._priced_at = 0  # allocated milli
        self._weight = np.zeros(2)
        self._typical = np.zeros((0, 5), dtype=np.int64)
        self._frequency = np.zeros(0)
        match policy:
            case LeastWaste():
                self._rule = kernels.LEAST_WASTE
                self._table = expected_waste(policy.workload.pieces, policy.draws)
                means = (policy.workload.cpu_milli_per_gpu_milli, policy.workload.host_memory_mib_per_gpu_milli)
                tiny = 1e-9  # a mix that uses none of a resource is never short of it
                self._appetites = np.array([[max(a * mean, tiny) for mean in means] for a in policy.appetites])
                self._weight[:] = policy.shortage_weight / max(len(policy.appetites), 1)
                self._weight[1] = policy.unusable_weight
                self._typical, self._frequency = self._mix(policy.workload.typical(1.0))
                self._frequency *= self._typical[:, kernels.MILLI] * self._typical[:, kernels.GPUS]
                self._frequency /= max(float(self._frequency.sum()), 1e-9)
                if any(request.gpu_types for request, _ in policy.workload.counts):
                    self._typed_mix = policy.workload
                    self._price_types()
                if policy.hold_back is not None:
                    self._hold_back = policy.hold_back
            case Fragmentation():
                self._rule = kernels.FRAGMENTATION
                self._weight[1] = 1.0
                self._typical, self._frequency = self._mix(policy.workload.typical(policy.popularity))
            case BestFit():
                self._rule = kernels.BEST_FIT
                self._weight[:] = policy.most_cpu_milli, policy.most_gpu_milli

    def _price_types(self) -> None:
        """Finds which GPU types the mix would overbook from here on; that changes the scores of all hosts."""
        assert self._typed_mix is not None
        self._priced_at = self.allocated_gpu_milli()
        free = {name: float(self._free[self._gpu_types == bit].sum()) for name, bit in self._type_bit.items()}
        price = scarcity_by_type(free, self._typed_mix)
        scarcity = np.array([price[host.gpu_type] for host in self.hosts])
        if not np.array_equal(scarcity, self._scarcity):
            self._scarcity = scarcity
            self._version += 1

    def _mix(self, typical: Sequence[tuple[GpuRequest, float]]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        rows = [self._request_row(request) for request, _ in typical]
        return np.array(rows, dtype=np.int64).reshape(-1, 5), np.array([share for _, share in typical])

    def _request_row(self, request: GpuRequest) -> tuple[int, int, int, int, int]:
        """Returns a request as a row of the kernels, with a bit for each GPU type that it may run on."""
        allowed = sum(self._type_bit.get(name, 0) for name in set(request.gpu_types)) if request.gpu_types else -1
        return request.cpu_milli, request.host_memory_mib, request.gpu_milli, request.gpus, allowed

    def _reserve(self, kinds: int) -> None:
        known = len(self._kind)
        grown = np.zeros((kinds, 5), dtype=np.int64)
        grown[:known] = self._kinds[:known]
        self._kinds = grown
        self._scored = np.full((kinds, len(self.hosts)), -1, dtype=np.int64)
        self._scores = np.zeros((kinds, len(self.hosts)))
        self._devices = np.zeros((kinds, len(self.hosts)), dtype=np.int64)

    def kind_of(self, request: GpuRequest) -> int:
        """Returns the number of a kind of request; kinds named in advance cost nothing later."""
        if request not in self._kind:
            if len(self._kind) == len(self._kinds):
                self._reserve(2 * len(self._kinds))
            kind = len(self._kind)
            self._kind[request] = kind
            self._kinds[kind] = self._request_row(request)
        return self._kind[request]

    def place(self, request: GpuRequest) -> PlacedRequest | None:
        """Places a request by the policy; returns None if it fits nowhere or the policy refuses it."""
        host, device = kernels.choose(
            self._rule, self.kind_of(request), self._hold_back, self._kinds, self._host_free, self._free, self._gpus,
            self._gpu_types, self._scarcity, self._version, self._scored, self._scores, self._devices, self._spare,
            self._table, self._appetites, self._weight, self._typical, self._frequency,
        )  # fmt: skip
        if host < 0:
            return None
        if request.is_part:
            devices: tuple[int, ...] = (device,)
        else:
            whole = (gpu for gpu, free in enumerate(self._free[host].tolist()) if free == GPU_MILLI)
            devices = tuple(gpu for gpu, _ in zip(whole, range(request.gpus), strict=False))
        self._take(host, devices, request, 1)
        return PlacedRequest(self.hosts[host].name, devices)

    def remove(self, request: GpuRequest, placed: PlacedRequest) -> None:
        """Returns the resources of a request to its host."""
        self._take(self._row[placed.host], placed.gpus, request, -1)

    def could_hold(self, request: GpuRequest) -> bool:
        """Returns whether the request fits anywhere now, even if the policy would refuse it."""
        kind = np.array(self._request_row(request), dtype=np.int64)
        rows = zip(self._host_free, self._free, self._gpus.tolist(), self._gpu_types.tolist(), strict=True)
        return any(kernels.fits(host_free, free, gpus, gpu_type, kind) for host_free, free, gpus, gpu_type in rows)

    def allocated_gpu_milli(self) -> int:
        return int(self._gpus.sum()) * GPU_MILLI - int(self._free.sum())

    def _take(self, host: int, devices: tuple[int, ...], request: GpuRequest, sign: int) -> None:
        self._host_free[host, 0] -= sign * request.cpu_milli
        self._host_free[host, 1] -= sign * request.host_memory_mib
        for gpu in devices:
            self._free[host, gpu] -= sign * request.gpu_milli
        self._version[host] += 1
        if self._typed_mix is not None:
            allocated = self.allocated_gpu_milli()
            if not allocated or abs(allocated - self._priced_at) > PRICED_AFTER_SHARE * GPU_MILLI * self._gpus.sum():
                self._price_types()

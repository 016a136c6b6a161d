"""Tracks the free room of every GPU and node while a heuristic places one instance after another."""

from __future__ import annotations

from collections import Counter

from solvers.hetsev.placement.problem import PlacementGpu, PlacementInstance, PlacementProblem

SLACK = 1e-9  # relative: the rounding of floating-point sums


class Rooms:
    """The fleet as it fills up, starting from the current placement."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        self.placement: dict[str, str] = {}
        self.free_gib = {gpu.name: gpu.memory_gib for gpu in problem.gpus}
        self._cores = {node.name: node.cpu_cores for node in problem.nodes}
        self._host_gib = {node.name: node.host_memory_gib for node in problem.nodes}
        self._models: Counter[tuple[str, str]] = Counter()
        for name, where in sorted(problem.current.items()):
            self.put(problem.by_name[name], problem.gpu_by_name[where])

    def put(self, instance: PlacementInstance, gpu: PlacementGpu) -> None:
        self.placement[instance.name] = gpu.name
        self.free_gib[gpu.name] -= instance.memory_gib
        self._cores[gpu.node] -= instance.cpu_cores
        self._host_gib[gpu.node] -= instance.host_memory_gib
        self._models[gpu.name, instance.model] += 1

    def has_capacity(self, instance: PlacementInstance, gpu: PlacementGpu) -> bool:
        """HetSev, algorithm 1, line 7: GPU memory, CPU cores, CPU memory."""
        return (
            self.problem.suits(instance, gpu)
            and instance.memory_gib <= self.free_gib[gpu.name] + SLACK * gpu.memory_gib
            and instance.cpu_cores <= self._cores[gpu.node] + SLACK * instance.cpu_cores
            and instance.host_memory_gib <= self._host_gib[gpu.node] + SLACK * instance.host_memory_gib
        )

    def keeps_apart(self, instance: PlacementInstance, gpu: PlacementGpu) -> bool:
        """HetSev, algorithm 1, line 9: the anti-affinity of instances of one model."""
        return self._models[gpu.name, instance.model] < self.problem.same_model_per_gpu

    def candidates(self, instance: PlacementInstance) -> list[PlacementGpu]:
        gpus = self.problem.gpus
        return [gpu for gpu in gpus if self.has_capacity(instance, gpu) and self.keeps_apart(instance, gpu)]

    def why_not(self, instance: PlacementInstance) -> str:
        """Names the limit that keeps an instance off every GPU."""
        gpus = [gpu for gpu in self.problem.gpus if self.problem.suits(instance, gpu)]
        if not gpus:
            return f"no GPU of a suitable type has {instance.memory_gib:g} GiB"
        able = [gpu for gpu in gpus if self.has_capacity(instance, gpu)]
        if able:
            return f"each of the {len(able)} GPUs with room already runs an instance of {instance.model}"
        widest = max(self.free_gib[gpu.name] for gpu in gpus)
        if widest < instance.memory_gib:
            return f"needs {instance.memory_gib:g} GiB; the largest free slot is {widest:g} GiB"
        return (
            f"needs {instance.cpu_cores:g} CPU cores and {instance.host_memory_gib:g} GiB of host memory; "
            "no node has both"
        )

"""Keeps the lines of a plan under judgement: by the GPU they are on, and by the service or job they belong to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from operator import attrgetter

from solvers.planning.judge.readings import JobResident, JudgedGpu, Reader, Resident
from solvers.planning.problem import Instance, Place, PlacedJob, Problem


class PlanLines:
    """Every instance and job of a plan, on its GPU."""

    def __init__(self, problem: Problem) -> None:
        self.reader = Reader(problem)
        self.gpus: dict[Place, JudgedGpu] = {}
        self.by_node: dict[str, dict[Place, JudgedGpu]] = defaultdict(dict)
        self.by_service: dict[str, dict[int, Resident]] = defaultdict(dict)
        self.by_job: dict[str, list[JobResident]] = defaultdict(list)
        self.missing_gpus: dict[Place, JudgedGpu] = {}  # that a line names and no node has
        self._survivors = {name for name, service in problem.services.items() if service.availability.survive_nodes}

    def seat(self, instance: Instance, place: Place) -> tuple[Resident, JudgedGpu | None]:
        """Adds an instance at its place, and on all its GPUs; the GPU is None where no node has one of them."""
        gpu, keeper = self._gpu(place)
        service = self.reader.problem.services.get(instance.service)
        line = self.reader.resident(instance, service, gpu.node if gpu else None)
        keeper.residents.append(line)
        for other in instance.places[1:]:
            further, keeper = self._gpu(other)
            keeper.residents.append(line)
            gpu = gpu if further else None
        self.by_service[instance.service][id(line)] = line
        return line, gpu

    def unseat(self, instance: Instance) -> Resident:
        _, keeper = self._gpu(instance.place)
        line = line_of(keeper, instance)
        keeper.residents.remove(line)
        for other in instance.places[1:]:
            self._gpu(other)[1].residents.remove(line)
        del self.by_service[instance.service][id(line)]
        return line

    def seat_job(self, placed: PlacedJob) -> tuple[JobResident, JudgedGpu | None]:
        gpu, keeper = self._gpu(placed.place)
        line = self.reader.job(placed, gpu.node if gpu else None)
        keeper.jobs.append(line)
        for other in placed.places[1:]:
            further, keeper = self._gpu(other)
            keeper.jobs.append(line)
            gpu = gpu if further else None
        self.by_job[placed.job].append(line)
        return line, gpu

    def unseat_job(self, placed: PlacedJob) -> JobResident:
        _, keeper = self._gpu(placed.place)
        line = next(line for line in keeper.jobs if line.placed == placed)
        keeper.jobs.remove(line)
        for other in placed.places[1:]:
            self._gpu(other)[1].jobs.remove(line)
        self.by_job[placed.job].remove(line)
        return line

    def survivors_on(self, places: Iterable[Place]) -> set[str]:
        """Returns the services on these GPUs that survive the loss of a node: what is left depends on neighbours."""
        if not self._survivors:
            return set()
        gpus = [gpu for place in places if (gpu := self.gpus.get(place))]
        return self._survivors & {line.instance.service for gpu in gpus for line in gpu.residents}

    def drop_gpu(self, place: Place) -> None:
        """Forgets a GPU that nothing runs on any more."""
        del self.gpus[place], self.by_node[place[0]][place]

    def _gpu(self, place: Place) -> tuple[JudgedGpu | None, JudgedGpu]:
        """Returns the GPU if a node has it, and in any case the object that holds its lines."""
        gpu = self.gpus.get(place)
        if gpu is not None:
            return gpu, gpu
        problem = self.reader.problem
        node = problem.nodes.get(place[0])
        if node is None or not node.has_gpu(place[1]):
            if place not in self.missing_gpus:
                self.missing_gpus[place] = JudgedGpu.nowhere(place[1])
            return None, self.missing_gpus[place]
        gpu = JudgedGpu(node, problem.type_at(place), place[1])
        self.gpus[place] = self.by_node[node.name][place] = gpu
        return gpu, gpu


def gpus_with(
    problem: Problem, instances: Iterable[Instance], jobs: Iterable[PlacedJob], reader: Reader | None = None
) -> dict[Place, JudgedGpu]:
    """Puts instances and jobs on their GPUs, which must exist; `slow_down` then finds the execution times.

    A caller that does so again for the same problem keeps the reader.
    """
    reader, gpus = reader or Reader(problem), dict[Place, JudgedGpu]()

    def gpu_at(place: Place) -> JudgedGpu:
        node = problem.nodes[place[0]]
        return gpus.setdefault(place, JudgedGpu(node, problem.type_at(place), place[1]))

    for instance in instances:
        gpu = gpus.get(instance.place) or gpu_at(instance.place)
        gpu.residents.append(reader.resident(instance, problem.services[instance.service], gpu.node))
    for job in jobs:
        gpu = gpus.get(job.place) or gpu_at(job.place)
        line = reader.job(job, gpu.node)
        for place in job.places:
            (gpus.get(place) or gpu_at(place)).jobs.append(line)
    return gpus


def line_of(gpu: JudgedGpu, instance: Instance) -> Resident:
    """Returns the line of this instance on its GPU."""
    for line in gpu.residents:
        if line.instance is instance:
            return line
    return next(line for line in gpu.residents if line.instance == instance)


# All of an instance but its rate and its timeout
shape_of = attrgetter(
    "service", "node", "gpu", "gpus", "variant", "batch", "sm_percent", "memory_gib", "clock_mhz"
)  # fmt: skip


def where(line: Instance | PlacedJob) -> str:
    """Names a line in a violation."""
    if isinstance(line, PlacedJob):
        return f"{line.job} on {line.node}/{','.join(f'{index}' for _, index in line.places)}"
    return f"{line.service} on {line.node}/{','.join(f'{index}' for _, index in line.places)}"

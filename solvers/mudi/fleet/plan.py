"""Plans a fleet as Mudi does: services keep their GPUs at the smallest SM%, and jobs go where they hurt least."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from solvers.mudi.fleet.devices import DeviceShares, MudiDevice
from solvers.mudi.fleet.refereed import referee_shares
from solvers.mudi.fleet.shapes import MudiResident
from solvers.mudi.fleet.trials import FleetTrials
from solvers.planning.carried import admitted, carry, spread_rate
from solvers.planning.fleet.commons import Commons
from solvers.planning.fleet.offers import FleetShape, read_offers
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.judge.paces import pace_jobs
from solvers.planning.plan import Unplaced, Unserved
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Demand, Instance, Job, Knowledge, Place, PlacedJob, Problem, Service
from solvers.planning.stopping import spare_instances

NOT_CARRIED = "its instances do not carry it beside their neighbours"
NO_ROOM = "no GPU with a service has SMs, memory and watts for it while the SLOs hold"
METHOD = "jobs by the smallest slope"
TOO_SLOW = "beside a service it would miss its deadline"
USED_SHARE = 0.999  # of what a whole GPU carries


def plan(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns Mudi's next plan; it depends on what runs, the rates, and what was measured of batches beside jobs."""
    state = problem.state
    running = admitted(problem, state.running, state.jobs) if state else []
    rooms = FleetRooms(problem, running, state.jobs if state else ())
    devices = _devices(problem, running, rooms)
    unplaced = _place_jobs(problem, devices, state.jobs if state else ())
    trials = FleetTrials(state, knowledge)
    for _, device in sorted(devices.items()):
        trials.set_batch(device)
    method = f"{referee_shares(devices.values())}, {METHOD}"
    seats = [seat for device in devices.values() if device.shares for seat in device.shares.seats]
    jobs = [job for device in devices.values() if device.shares for job in device.shares.jobs]
    instances, rests = carry(problem, seats, jobs)
    paced = pace_jobs(problem, instances, jobs)
    if late := {job.job for job in paced if _is_late(problem, job)}:  # the next plan uses what they leave free
        jobs = [job for job in jobs if job.job not in late]
        instances, rests = carry(problem, seats, jobs)
        paced = pace_jobs(problem, instances, jobs)
    unplaced += [Unplaced(name, TOO_SLOW) for name in sorted(late)]
    unserved = tuple(
        Unserved(name, rate, rooms.why_no_gpu(problem.services[name]) or NOT_CARRIED)
        for name, rate in sorted(rests.items())
    )
    return PlannerDraft(
        tuple(instances),
        unserved,
        f"{method}, batches by GP-LCB" if trials.is_under_way else method,
        trials.knowledge(),
        tuple(paced),
        tuple(unplaced),
    )


def _devices(problem: Problem, running: Sequence[Instance], rooms: FleetRooms) -> dict[Place, MudiDevice]:
    """Returns the GPUs with services, each at its smallest SM% without jobs."""
    running_ids = {line.id for line in running}
    devices: dict[Place, MudiDevice] = {}
    for service in sorted(problem.services.values(), key=lambda service: (-service.priority, service.name)):
        own = [line for line in running if line.service == service.name]
        alone = [line for line in own if line.place not in devices]
        beside = [line for line in own if line.place in devices]
        for seat, rate in instances_with_rates(problem, service, alone, beside, rooms):
            profile = problem.profile(service.name, seat.variant, seat.node)
            assert profile
            device = devices.setdefault(seat.place, MudiDevice(problem, seat.place, []))
            device.residents.append(MudiResident(seat, service, profile, rate, seat.id in running_ids))
    for device in devices.values():
        device.settle()
    return devices


def _place_jobs(problem: Problem, devices: dict[Place, MudiDevice], running: Iterable[PlacedJob]) -> list[Unplaced]:
    """Keeps running jobs where they fit, and puts the others on the GPU of the smallest slope (M3); returns the rest.

    A running job that no longer fits leaves its GPU to the service, as Mudi swaps training out (M8).
    """
    commons = Commons.of(problem.nodes)
    for device in devices.values():
        for resident in device.residents:
            _use(commons, device, resident.profile.demand)
    runs_at = {job.job: job.place for job in running}
    for place, jobs in _staying(problem, running).items():
        _stay(commons, problem, devices.setdefault(place, MudiDevice(problem, place, [])), jobs)

    def rank(job: Job) -> tuple[bool, bool, float, str]:
        return job.is_preemptible, job.name not in runs_at, -job.priority, job.name

    rest = []
    placed = {job.name for device in devices.values() for job in device.jobs}
    for job in sorted((job for name, job in problem.jobs.items() if name not in placed), key=rank):
        own = devices.get(runs_at[job.name]) if job.name in runs_at else None
        is_kept = own is not None and _put(commons, own, job)
        if not is_kept and not any(_put(commons, device, job) for device in _rank(devices, job)):
            rest.append(Unplaced(job.name, NO_ROOM))
    return rest


def _staying(problem: Problem, running: Iterable[PlacedJob]) -> dict[Place, list[PlacedJob]]:
    """Returns the running jobs that must stay, by GPU."""
    found: dict[Place, list[PlacedJob]] = defaultdict(list)
    for job in sorted(running, key=lambda job: job.job):
        if not problem.jobs[job.job].is_preemptible:
            found[job.place].append(job)
    return found


def _rank(devices: dict[Place, MudiDevice], job: Job) -> list[MudiDevice]:
    """Returns the GPUs that can take this job, the smallest slope first."""
    found = []
    for place, device in sorted(devices.items()):
        shares = device.share_with_jobs([*device.jobs, job])
        if shares is not None:
            found.append((device.slope_with(shares, [*device.jobs, job]), place, device))
    return [device for _, _, device in sorted(found, key=lambda entry: entry[:2])]


def _stay(commons: Commons, problem: Problem, device: MudiDevice, placed: Sequence[PlacedJob]) -> None:
    """Leaves running jobs on a GPU; its services make room for them where not all limits and SLOs hold."""
    jobs = [problem.jobs[job.job] for job in placed]
    if not device.residents or not all(_put(commons, device, job) for job in jobs):
        for demand in [resident.profile.demand for resident in device.residents] + _list_demands(device, device.jobs):
            _use(commons, device, demand, -1)
        device.residents, device.jobs, device.shares = [], jobs, DeviceShares((), tuple(placed))
        for demand in _list_demands(device, jobs):
            _use(commons, device, demand)


def _put(commons: Commons, device: MudiDevice, job: Job) -> bool:
    """Puts a job on a GPU if all of its limits and SLOs hold."""
    profile = job.profiles.get(device.type.name)
    if profile is None or any(resident.service.is_dedicated for resident in device.residents):
        return False
    demand = profile.demand
    if not commons.has_room(commons.nodes[device.place[0]], demand.cpu_cores, demand.host_memory_gib):
        return False
    shares = device.share_with_jobs([*device.jobs, job])
    if shares is None:
        return False
    device.jobs.append(job)
    device.shares = shares
    _use(commons, device, demand)
    return True


def _list_demands(device: MudiDevice, jobs: Sequence[Job]) -> list[Demand]:
    return [job.profiles[device.type.name].demand for job in jobs]


def _use(commons: Commons, device: MudiDevice, demand: Demand, times: int = 1) -> None:
    """Takes what an instance or a job needs of its node, or gives it back."""
    commons.use_node(commons.nodes[device.place[0]], times * demand.cpu_cores, times * demand.host_memory_gib)


def _is_late(problem: Problem, placed: PlacedJob) -> bool:
    job, now = problem.jobs[placed.job], problem.state.now if problem.state else None
    if job.deadline is None or now is None or not job.is_preemptible:
        return False
    left = (job.deadline - now).total_seconds()
    return left <= 0 or placed.units_per_second * left < job.units


def instances_with_rates(
    problem: Problem, service: Service, own: Sequence[Instance], beside: Sequence[Instance], rooms: FleetRooms
) -> list[tuple[Instance, float]]:
    """Returns the instances of a service, each with its part of the rate.

    Those that run `beside` another service stay only where no GPU is idle.
    """
    offered = read_offers(problem).find_whole_shapes(service, rooms.pools)
    shapes = {(shape.pool.gpu_type, shape.variant): shape for shape in offered}
    seats = [(seat, _whole_rate(problem, shapes, seat)) for seat in own]
    seats = _drop_spare(problem, service, [(seat, most) for seat, most in seats if most > 0])
    left = [(seat, most) for seat in beside if (most := _whole_rate(problem, shapes, seat)) > 0]
    while len(seats) < service.min_instances or sum(most for _, most in seats) < service.rate_per_second:
        found = _start(service, list(shapes.values()), rooms) or (left.pop(0) if left else None)
        if found is None:
            break
        seats.append(found)
    if len(seats) < max(1, service.min_instances):
        return []
    shares = spread_rate(service, [most for _, most in seats])
    return [(seat, share) for (seat, _), share in zip(seats, shares, strict=True)]


def _whole_rate(problem: Problem, shapes: dict[tuple[str, str], FleetShape], seat: Instance) -> float:
    shape = shapes.get((problem.nodes[seat.node].gpu_type, seat.variant))
    return USED_SHARE * shape.rate_per_second if shape else 0.0


def _drop_spare(
    problem: Problem, service: Service, seats: list[tuple[Instance, float]]
) -> list[tuple[Instance, float]]:
    dearest = sorted(seats, key=lambda entry: (-problem.nodes[entry[0].node].price_per_hour, entry[0].id))
    gone = spare_instances(service, [(seat.id, most) for seat, most in dearest])
    return [entry for entry in seats if entry[0].id not in gone]


def _start(service: Service, shapes: Sequence[FleetShape], rooms: FleetRooms) -> tuple[Instance, float] | None:
    """Places an instance on an idle GPU, and returns it with what it carries there."""
    for shape in sorted(shapes, key=lambda shape: shape.pool.price_per_hour / shape.rate_per_second):
        if places := rooms.idle_places(shape, service):
            return rooms.start_on(places[0], shape, service), USED_SHARE * shape.rate_per_second
    return None

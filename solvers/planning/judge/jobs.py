"""Rules of jobs: they run where they were profiled, open only GPUs they may, and meet their deadlines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from solvers.planning.judge.billing import is_billed_whole, whole_price
from solvers.planning.judge.readings import JobResident, JudgedGpu
from solvers.planning.judge.shapes import find_misnamed_gpus, find_unlinked, outside
from solvers.planning.judge.tolerances import SUM_SHARE, is_at_most
from solvers.planning.plan import Unplaced
from solvers.planning.problem import OWN, Job, Node, PlacedJob, Policy, Problem

WHOLE_PERCENT = 100

# A line of the plan by itself


def job_exists(problem: Problem, line: JobResident, gpu: JudgedGpu | None) -> str | None:
    """job in jobs"""
    return None if line.job else f"there is no job {line.placed.job}"


def job_gpu_exists(problem: Problem, line: JobResident, gpu: JudgedGpu | None) -> str | None:
    """node in nodes, 0 <= gpu < gpus of the node, a whole number; so are all of its GPUs, which rise"""
    return find_misnamed_gpus(problem, line.placed, gpu)


def job_gpus_counted(problem: Problem, line: JobResident, gpu: JudgedGpu | None) -> str | None:
    """as many GPUs as the job asks for"""
    if line.job is None or line.placed.degree == line.job.gpus:
        return None
    return f"it has {line.placed.degree} GPUs and asks for {line.job.gpus}"


def job_gpus_linked(problem: Problem, line: JobResident, gpu: JudgedGpu | None) -> str | None:
    """several GPUs => they are in one group of linked GPUs of the node"""
    return find_unlinked(line.placed, gpu)


def job_gpus_whole(problem: Problem, line: JobResident, gpu: JudgedGpu | None) -> str | None:
    """several GPUs => smPercent 100"""
    if not line.placed.gpus or line.placed.sm_percent == WHOLE_PERCENT:
        return None
    return f"smPercent {line.placed.sm_percent:g} is not 100: a job on several GPUs holds them whole"


def job_profiled(problem: Problem, line: JobResident, gpu: JudgedGpu | None) -> str | None:
    """type(gpu) in the job's profiles"""
    if line.job is None or gpu is None or line.profile:
        return None
    return f"it has no profile on {gpu.type.name}; it has on: {', '.join(sorted(line.job.profiles))}"


def job_sm_profiled(problem: Problem, line: JobResident, gpu: JudgedGpu | None) -> str | None:
    """first SM% of its speeds <= smPercent <= last, a whole number"""
    if line.profile is None:
        return None
    curve = line.profile.units_per_second
    return outside(line.placed.sm_percent, curve[0][0], curve[-1][0])


def job_memory_covers(problem: Problem, line: JobResident, gpu: JudgedGpu | None) -> str | None:
    """memoryGib >= memoryGib of its profile"""
    if line.profile is None or is_at_most(line.profile.memory_gib, line.placed.memory_gib):
        return None
    return f"memoryGib {line.placed.memory_gib:g} is less than the {line.profile.memory_gib:g} it needs"


def job_template_offered(problem: Problem, line: JobResident, gpu: JudgedGpu | None) -> str | None:
    """template(job) in templates(node), where the job names one and the node lists templates"""
    if line.job is None or gpu is None or line.job.template is None or gpu.node.templates is None:
        return None
    if line.job.template in gpu.node.templates:
        return None
    own = line.job.template.startswith(OWN)
    what = "admit its own runtime" if own else f"offer its template {line.job.template}"
    return f"node {gpu.node.name} does not {what}"


LINE_RULES = (
    job_exists,
    job_gpu_exists,
    job_gpus_counted,
    job_gpus_linked,
    job_gpus_whole,
    job_profiled,
    job_template_offered,
    job_sm_profiled,
    job_memory_covers,
)

# A GPU


def is_opened_for_jobs(gpu: JudgedGpu, policy: Policy) -> bool:
    """Returns whether only jobs pay for this GPU: no service runs there, and nothing else pays for its node."""
    if not gpu.jobs or gpu.residents:
        return False
    return not gpu.node.is_paid_anyway and not is_billed_whole(gpu.node, policy)


def is_node_opened_for_jobs(node: Node, gpus: Sequence[JudgedGpu]) -> bool:
    """Returns whether only jobs pay for a node that is billed whole: none of its GPUs has a service, one has a job."""
    is_used = any(gpu.jobs for gpu in gpus) and not any(gpu.residents for gpu in gpus)
    return is_used and not node.is_paid_anyway


def job_may_open(problem: Problem, gpu: JudgedGpu) -> str | None:
    """a GPU opened for jobs => one of them has a deadline or maxPricePerHour, and price <= its maxPricePerHour if any

    One such job is enough: the others share what it pays for. So they do on a GPU where a job must stay. The price of
    a job on several GPUs is that of all of them.
    """
    if not is_opened_for_jobs(gpu, problem.policy):
        return None
    degree = max(line.placed.degree for line in gpu.jobs)
    return _not_allowed(problem, gpu.jobs, degree * gpu.node.price_per_hour)


def job_may_open_node(problem: Problem, node: Node, gpus: Sequence[JudgedGpu]) -> str | None:
    """a node billed whole and opened for jobs => one of them has a deadline or maxPricePerHour, and the price of all
    its GPUs <= its maxPricePerHour if any
    """
    if not is_billed_whole(node, problem.policy) or not is_node_opened_for_jobs(node, gpus):
        return None
    return _not_allowed(problem, [line for gpu in gpus for line in gpu.jobs], whole_price(node))


def _not_allowed(problem: Problem, lines: Sequence[JobResident], price: float) -> str | None:
    """Returns why none of these jobs may open what they run on; None if one may, or must stay there."""
    if not any(line.job for line in lines):
        return None
    if any(line.job and not line.job.is_preemptible and _runs_here(problem, line) for line in lines):
        return None
    for line in lines:
        if line.job and (line.job.deadline or line.job.max_price_per_hour is not None):
            most = line.job.max_price_per_hour
            if most is None or is_at_most(price, most):
                return None
    names = ", ".join(sorted(line.placed.job for line in lines))
    return f"it costs {price:g} an hour and is opened for {names}, whose deadline or maxPricePerHour does not allow it"


def _runs_here(problem: Problem, line: JobResident) -> bool:
    running = problem.state.jobs if problem.state else ()
    return any(job.job == line.placed.job and job.place == line.placed.place for job in running)


# A job over the whole plan


def runs_once(
    problem: Problem, job: Job, lines: Sequence[JobResident], claims: Sequence[Unplaced], stays: PlacedJob | None
) -> str | None:
    """places + entries in unplaced <= 1; both are allowed for a job that must stay though it misses its deadline"""
    if len(lines) > 1:
        return f"it is placed {len(lines)} times"
    if len(claims) > 1:
        return f"unplaced lists it {len(claims)} times"
    if lines and claims and not stays:
        return "it is placed, and unplaced lists it too"
    return None


def deadline_met(
    problem: Problem, job: Job, lines: Sequence[JobResident], claims: Sequence[Unplaced], stays: PlacedJob | None
) -> str | None:
    """units per second >= units left / (deadline - now), or in unplaced; not judged without State.now

    A running job that is not preemptible stays, however late it is.
    """
    now = problem.state.now if problem.state else None
    if job.deadline is None or now is None or claims:
        return None
    if not lines:
        return "it has a deadline but is neither placed nor listed in unplaced"
    speed = lines[0].units_per_second
    if stays or speed is None:
        return None
    left = seconds_left(job, now)
    if left > 0 and speed * left >= job.units * (1 - SUM_SHARE):
        return None
    return f"{speed:.6g} a second in the remaining {left:.6g} seconds do not complete the remaining {job.units:g}"


def running_job_stays(
    problem: Problem, job: Job, lines: Sequence[JobResident], claims: Sequence[Unplaced], stays: PlacedJob | None
) -> str | None:
    """running and not preemptible => it runs on the same GPU, or the same GPUs"""
    if stays is None or any(line.placed.places == stays.places for line in lines):
        return None
    return f"it runs on {stays.node}/{stays.gpu} and is not preemptible, so it must stay there"


RULES = (runs_once, deadline_met, running_job_stays)


def seconds_left(job: Job, now: datetime | None) -> float:
    assert job.deadline is not None and now is not None
    return (job.deadline - now).total_seconds()


def unplaced_exists(problem: Problem, name: str, claims: Sequence[Unplaced]) -> str | None:
    """unplaced names jobs"""
    return f"unplaced names {name}, but there is no such job" if claims and name not in problem.jobs else None

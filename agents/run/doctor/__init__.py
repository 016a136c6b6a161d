"""Checks what this node can enforce and advises what to do about the rest; it tries things and changes nothing."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from agents.devices.mps.program import PROGRAM
from agents.run.doctor import admission, gpus, machine, mps, neighbours
from agents.run.doctor.bounded import Check, run
from agents.run.doctor.findings import Diagnosis, DoctorFinding, Level, ok
from agents.run.opening import MPS, MPS_LAUNCHER, AgentOptions
from agents.seams.device import DeviceError

__all__ = ["Diagnosis", "DoctorFinding", "Level", "examine"]

CHECK_SECONDS = 8.0


def examine(options: AgentOptions, tries_copy: bool = False) -> Diagnosis:
    """Runs every check within twice CHECK_SECONDS: first the driver, then the rest in parallel; then perhaps a copy."""
    facts: list[gpus.DriverFacts] = []
    simulated = options.device == "simulated"
    first = [_explain_simulated(options)] if simulated else run([("driver", partial(_look, facts))], CHECK_SECONDS)
    has_gpu = simulated or bool(facts and facts[0].count)
    of_gpus = _list_gpu_checks(facts[0], options) if facts and facts[0].gpus else []
    count = options.simulated_gpus if simulated else facts[0].count if facts else 0
    checks = [*of_gpus, *_list_machine_checks(options, simulated), *_list_cluster_checks(options, count)]
    rest = run(checks, CHECK_SECONDS)
    last = _try_copy(options, facts[0].gpus[0].uuid if of_gpus else "") if tries_copy else []
    return Diagnosis((*first, *rest, *last), has_gpu)


def _list_gpu_checks(facts: gpus.DriverFacts, options: AgentOptions) -> list[tuple[str, Check]]:
    helper = Path(options.helper) if options.helper else None
    return [
        ("compute mode", partial(gpus.compute_modes, facts, options.folder)),
        ("root helper", partial(gpus.check_settable, helper)),
        ("mps program", mps.program),
        ("mps daemon", partial(mps.daemons, facts, options.folder / MPS)),
        ("mps user", mps.users),
        *(
            [("mps launcher", partial(mps.launcher, options.folder / MPS_LAUNCHER))]
            if options.runtime == "pods"
            else []
        ),
    ]


def _list_machine_checks(options: AgentOptions, simulated: bool) -> list[tuple[str, Check]]:
    docker = options.runtime == "docker"
    image = None if options.kind == "process" else options.image
    pipes = options.folder / "simulated" / "mps" if simulated else options.folder / MPS
    return [
        ("mps folder", partial(mps.folder, pipes)),
        ("shared memory", machine.check_shared_memory),
        ("cgroups", machine.cgroups),
        ("state folder", partial(machine.state_folder, options.folder)),
        ("credential", partial(machine.credential, options.folder)),
        ("control plane", partial(neighbours.control_plane, options.folder)),
        ("gateway", partial(neighbours.gateway, options.gateway, options.folder, options.gateway_token_file)),
        ("docker", partial(neighbours.docker, docker)),
        ("templates", partial(machine.templates, options.templates, options.models, image)),
        ("allow-list", partial(admission.allow_list, options)),
        ("ports", partial(machine.ports, options.host)),
    ]


def _list_cluster_checks(options: AgentOptions, gpus: int) -> list[tuple[str, Check]]:
    if options.runtime == "slurm":
        from agents.run.doctor.slurm import check_slurm

        return [("slurm", partial(check_slurm, options, gpus))]
    if options.runtime != "pods":
        return []
    from agents.run.doctor.cluster import check_cluster

    return [("kubernetes", partial(check_cluster, options, gpus))]


def _try_copy(options: AgentOptions, gpu: str) -> list[DoctorFinding]:
    from agents.run.doctor import trial

    return run([("copy trial", partial(trial.try_copy, options, gpu))], trial.SECONDS)


def _explain_simulated(options: AgentOptions) -> DoctorFinding:
    text = f"not checked: {options.simulated_gpus} simulated {options.simulated_kind} GPUs are used instead"
    return ok("driver", text)


def _look(facts: list[gpus.DriverFacts]) -> list[DoctorFinding]:
    try:
        facts.append(gpus.ask_driver(shutil.which(PROGRAM) is not None))
    except DeviceError as error:
        return [gpus.no_driver(error)]
    except ImportError:
        return [gpus.no_binding()]
    if not facts[0].count:
        return [gpus.no_gpus(facts[0])]
    return list(gpus.describe_gpus(facts[0]))

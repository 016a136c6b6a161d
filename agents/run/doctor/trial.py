"""Starts a pod as copies are, looks whether all is as for a copy, and ends it."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from agents.kubernetes.api import Account, ApiAway, ApiRefused, KubernetesApi
from agents.kubernetes.following import Follower
from agents.kubernetes.names import name_claim
from agents.node.gpu_claims import read_claimed, read_offered
from agents.programs.seen_gpus import SEES
from agents.run.doctor.cluster import read_node_name
from agents.run.doctor.findings import DoctorFinding, fail, ok
from agents.run.opening import AgentOptions, write_pod_settings
from agents.runtime import Launch, LaunchError, Running
from agents.runtime.pods import PodRuntime
from agents.templates import Filled

START_SECONDS = 60.0  # an image may have to be pulled
END_SECONDS = 20.0
SECONDS = START_SECONDS + 2 * END_SECONDS + 60.0  # its output and its end; what is taken away before and after
LOCK = "doctor.lock"  # in the state folder
LOOK_SECONDS = 0.2
PROGRAM = (sys.executable, "-I", "-m", "agents.programs.seen_gpus")
NO_GPU = "Let containers see GPUs: by NVIDIA's toolkit with CDI, or name its runtime class with --runtime-class."


def try_copy(options: AgentOptions, gpu: str) -> Iterator[DoctorFinding]:
    """Yields what happened to a pod with this GPU; without one where it is empty."""
    node = read_node_name(options)
    if not node:
        yield fail("copy trial", "this agent has not joined, so its node is unknown", "gpuwright agent join")
        return
    try:
        api = KubernetesApi(Account(options.account))
        claims = _find_claims(api, node, gpu)
        nodes = Follower(api, "/api/v1/nodes", {"fieldSelector": f"metadata.name={node}"})
        runtime = PodRuntime(api, write_pod_settings(options, node, part="trial"), nodes, lambda _: claims)
        with closing(nodes), closing(runtime), _alone(options.folder):
            nodes.start()
            nodes.wait(lambda _: True, END_SECONDS)
            _end_leftovers(runtime)
            yield from _try(runtime, gpu)
    except (ApiAway, ApiRefused, LaunchError, OSError, ValueError) as error:
        yield fail("copy trial", f"no pod could be tried: {error}", "See the findings of kubernetes above.")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keeps other doctors of this node from trying meanwhile: each ends what it takes for left by one before."""
    with (folder / LOCK).open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError("another doctor tries one on this node at the moment") from None
        yield


def _end_leftovers(runtime: PodRuntime) -> None:
    """Ends what a doctor has left that was killed."""
    for running in runtime.find():
        runtime.end(running, force=True)
    runtime.tidy(())


def _find_claims(api: KubernetesApi, node: str, gpu: str) -> Sequence[str]:
    """Returns by which claim the agent of this node gets the GPU; raises ValueError where it has none yet."""
    offered = read_offered(api, node) if gpu else None
    if offered is None:
        return ()
    claimed = read_claimed(api, node)
    if claimed is None or gpu not in claimed.gpus:
        raise ValueError(f"no claim of gpuwright has {gpu}: start the agent, and try again once it holds its GPUs")
    return (name_claim(node, gpu),)


def _try(runtime: PodRuntime, gpu: str) -> Iterator[DoctorFinding]:
    copy = f"doctor-{os.getpid()}-{time.monotonic_ns()}"
    filled = Filled("doctor", PROGRAM, {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"})
    began = time.monotonic()
    try:
        running = _start(runtime, Launch(copy, gpu, filled, 0))
        yield ok("copy trial", f"a pod of ours ran after {time.monotonic() - began:.0f} s, and its process was found")
        yield _check_seen(_read_seen(runtime, copy), gpu)
        runtime.announce(running)
        yield ok("copy gate", "the agent may say that a copy is ready")
        _end(runtime, running)
        yield ok("copy end", "it ended as asked, and nothing started it again")
    except LaunchError as error:
        why = f"{error}; {runtime.log_tail(copy)}".rstrip("; ")
        yield fail("copy trial", why, "Look at the pod with kubectl describe; its label is gpuwright.io/part=trial.")
    finally:
        with suppress(LaunchError):
            runtime.withdraw(copy)
        with suppress(LaunchError):
            runtime.tidy(())


def _start(runtime: PodRuntime, launch: Launch) -> Running:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if running := runtime.start(launch):
            return running
        time.sleep(LOOK_SECONDS)
    raise LaunchError(f"its pod does not run after {START_SECONDS:g} s")


def _read_seen(runtime: PodRuntime, copy: str) -> list[str] | None:
    """Returns the GPUs that the pod has printed; None where it has printed none of it in time."""
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        for line in runtime.log_tail(copy).splitlines():
            if line.startswith(SEES):
                return line.removeprefix(SEES).split()
        time.sleep(LOOK_SECONDS)
    return None


def _check_seen(seen: list[str] | None, gpu: str) -> DoctorFinding:
    if seen is None:
        return fail("copy gpu", "its log cannot be read", "The role `runner` may read the logs of pods.")
    if not gpu:
        return ok("copy gpu", "not tried: no real GPU was found on this node")
    if gpu not in seen:
        return fail("copy gpu", f"a copy with {gpu} sees {', '.join(seen) or 'no GPU'}", NO_GPU)
    if len(seen) > 1:
        advice = "Containers should see the GPUs that NVIDIA_VISIBLE_DEVICES names, and no others: see your toolkit."
        return fail("copy gpu", f"a copy with {gpu} sees others, too: {', '.join(seen)}", advice)
    return ok("copy gpu", f"a copy with {gpu} sees it alone")


def _end(runtime: PodRuntime, running: Running) -> None:
    runtime.end(running, force=False)
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        if not runtime.alive(running):
            runtime.withdraw(running.copy)
            return
        time.sleep(LOOK_SECONDS)
    runtime.end(running, force=True)
    raise LaunchError(f"it did not end {END_SECONDS:g} s after it was asked")

"""Opens this machine's devices, runtime, gateway and templates by the options of `gpuwright agent run`."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agents.admission.metadata import MetadataWall
from agents.admission.reading import AllowList, read_allow_list, user_fault
from agents.gateway.followers import FOLLOWED, Followers
from agents.host.plaintext import is_loopback, plaintext_refusal
from agents.keeper.drivers import NodeDrivers
from agents.keeper.ports import free_port
from agents.kubernetes.api import ACCOUNT
from agents.node.gpu_holders import GpuHolders
from agents.node.parts import NodeNotices, NodeParts
from agents.node.reclaim_file import ReclaimFile
from agents.runtime import CopyRuntime
from agents.runtime.replica_set import PodSettings
from agents.seams.device import Device, Mps
from agents.seams.routes import Acknowledged, Route, Routes, RouteState
from agents.seams.traffic import Counters
from agents.talk.copy_client import TcpCopyClient
from agents.templates.reading import MODELS, read_usable
from agents.templates.strict_file import FileRefused

if TYPE_CHECKING:
    from agents.runtime.core_groups import CoreGroups

log = logging.getLogger(__name__)

MPS, MPS_LAUNCHER = "mps", "mps-launcher"  # in the state folder: daemons' pipes, and who starts daemons for pods
COUNTS_SECONDS = 0.5  # the longest that an unresponsive gateway may delay the device watch


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The options of an agent."""

    folder: Path
    node: str = ""
    cluster_node: str = ""  # as Kubernetes calls it, where copies are pods
    device: str = "nvml"  # or simulated, or cores
    simulated_gpus: int = 4
    simulated_kind: str = "v100-16gb"
    cores: int = 0  # CPU cores to offer; 0: all that the agent may use
    cgroup: Path | None = None  # under which copies on cores are limited
    runtime: str = "process"  # or docker, pods, or slurm
    slurm_nodes: tuple[str, ...] = ()  # with slurm: Slurm's names of this machine, in the order of its GPUs
    slurm_options: tuple[str, ...] = ()  # with slurm: the site's own of sbatch
    image: str = ""  # with pods: of templates that name none
    priority_class: str = ""  # with pods
    runtime_class: str = ""  # with pods: that shows containers the GPUs they name
    account: Path = ACCOUNT  # with pods: token, certificate and namespace of the agent's own
    gateway: str = ""  # address of a sidecar; followed: gateways follow the control plane; empty: none
    gateway_token_file: str = ""
    gateway_ca_file: str = ""  # certificates to trust, PEM
    templates: Path | None = None  # the node's own, in addition to the shipped ones
    allow_list: Path | None = None  # of users' own images and commands; None: none is admitted
    models: Path = MODELS
    helper: str = ""  # socket of the root helper; empty: the agent writes to the devices itself
    host: str = "127.0.0.1"  # where the gateway reaches the copies
    reclaim_file: Path | None = None  # says when the cloud takes the node back

    @property
    def kind(self) -> str:
        """Returns what copies are: a job of Slurm's is a process of this machine like any other."""
        return "process" if self.runtime == "slurm" else self.runtime


class NoGateway:
    """Stands in for a gateway: clients find copies by themselves, and a drained copy has no open requests."""

    def declare(self, routes: Sequence[Route]) -> Acknowledged:
        return Acknowledged(tuple(RouteState(route.copy, not route.drained, 0) for route in routes))


def open_node(options: AgentOptions) -> NodeParts:
    """Opens everything that a node is built on; raises an error whose message says what is missing."""
    free_port(options.host, ())  # fails early if the address does not belong to this machine
    groups = _core_groups(options)
    device, mps = _cores(options, groups) if groups else _devices(options)
    routes, counters = _gateway(options)
    templates, faults = read_usable(options.templates, options.models)
    for fault in faults:
        log.error("a template cannot be used: %s", fault)
    allow_list = _allow_list(options)
    users = () if allow_list.user is None else (allow_list.user,)
    cluster = _open_cluster(options, users, device)
    runtime = cluster.runtime if cluster else _runtime(options, groups, users)
    drivers = NodeDrivers(device, mps, runtime, TcpCopyClient(options.host))
    followers = routes if isinstance(routes, Followers) else None
    checkpoints = options.models.resolve().parent / "checkpoints"
    return NodeParts(
        drivers,
        routes,
        templates,
        counters,
        options.host,
        followers,
        cluster.holders if cluster else None,
        cluster.notices if cluster else _find_notices(options),
        allow_list,
        options.kind,
        checkpoints,
        _metadata(options, allow_list),
    )


def _allow_list(options: AgentOptions) -> AllowList:
    """Returns what the node admits of users' own runtimes; with any fault in its file, nothing."""
    if options.allow_list is None:
        return AllowList()
    try:
        found = read_allow_list(options.allow_list, options.folder, options.models)
    except FileRefused as error:
        for fault in error.faults:
            log.error("the allow-list admits nothing: %s", fault)
        return AllowList()
    if fault := user_fault(found, under_mps=options.device != "cores"):
        log.error("the allow-list admits nothing: %s: %s", options.allow_list, fault)
        return AllowList()
    return found


def _metadata(options: AgentOptions, found: AllowList) -> MetadataWall | None:
    """Blocks the cloud's metadata address for users' own runtimes, before any of them starts."""
    if not found.startable_by(options.kind):
        return None
    is_own_user = found.user in (None, os.geteuid())
    shares_reach = options.runtime == "process" and is_own_user and options.cgroup is None
    wall = MetadataWall(options.kind, found.user, shares_reach)
    state = wall.state()
    if not state.blocked:
        log.warning("the metadata address is not blocked: %s", state.message)
    return wall


def _devices(options: AgentOptions) -> tuple[Device, Mps]:
    """Opens the devices; imports are local because an agent needs only one kind of device."""
    if options.device == "simulated":
        from agents.devices.simulated.remote import connect, ensure_driver

        folder = options.folder / "simulated"
        ensure_driver(folder, [options.simulated_kind] * options.simulated_gpus)
        return connect(folder)
    from agents.devices.mps import MpsControl
    from agents.devices.nvml.device import NvmlDevice

    if options.helper:
        from agents.devices.privileged.client import Privileged

        device = NvmlDevice(options.folder / "originals.json", writer=Privileged(Path(options.helper)))
    else:
        device = NvmlDevice(options.folder / "originals.json")
    # Copies that are pods outlive the agent's container, and so must the daemons that they are clients of.
    launcher = options.folder / MPS_LAUNCHER if options.runtime == "pods" else None
    return device, MpsControl(options.folder / MPS, launcher=launcher)


def _core_groups(options: AgentOptions) -> CoreGroups | None:
    """Returns the cgroups that limit copies on CPU cores; None for a node with GPUs."""
    if options.device != "cores":
        return None
    if options.runtime != "process":
        raise ValueError(f"--device cores limits processes of its own; leave out --runtime {options.runtime}")
    from agents.runtime.core_groups import CoreGroups
    from agents.runtime.core_limits import find_limits

    return CoreGroups((options.folder / "copies").resolve(), find_limits(options.cgroup))


def _cores(options: AgentOptions, groups: CoreGroups) -> tuple[Device, Mps]:
    from agents.devices.cores.device import CoresDevice, usable_cores
    from agents.devices.cores.shares import CoreShares

    cores = options.cores or usable_cores()
    return CoresDevice(groups, cores, options.folder), CoreShares(groups, cores)


def _runtime(options: AgentOptions, groups: CoreGroups | None, users: tuple[int, ...]) -> CopyRuntime:
    if options.runtime == "docker":
        from agents.runtime.docker import DockerRuntime

        return DockerRuntime(options.folder / "copies", gpus=options.device != "simulated")
    from agents.runtime.process import ProcessRuntime

    return ProcessRuntime(options.folder / "copies", groups or True, users=users)


def name_slurm_nodes(options: AgentOptions) -> tuple[str, ...]:
    """Returns the names by which Slurm knows this machine."""
    return options.slurm_nodes or (socket.gethostname().partition(".")[0],)


def _find_notices(options: AgentOptions) -> NodeNotices | None:
    return ReclaimFile(options.reclaim_file) if options.reclaim_file else None


@dataclass(frozen=True, slots=True)
class _ClusterParts:
    """What a node has that is one of a cluster's."""

    runtime: CopyRuntime
    holders: GpuHolders | None
    notices: NodeNotices


def _open_cluster(options: AgentOptions, users: tuple[int, ...], device: Device) -> _ClusterParts | None:
    """Opens the cluster that owns this node; None if nobody else does."""
    if options.runtime == "slurm":
        return _open_slurm(options, users, device)
    return _open_kubernetes(options) if options.runtime == "pods" else None


def _open_kubernetes(options: AgentOptions) -> _ClusterParts:
    """Opens the cluster that this agent is a pod of."""
    from agents.kubernetes.api import Account, ApiAway, KubernetesApi
    from agents.kubernetes.following import Follower
    from agents.node.cluster_notices import ClusterNotices
    from agents.runtime.pods import PodRuntime

    if options.reclaim_file is not None:
        raise ValueError("--runtime pods learns of a reclaim from its Node's taints; leave out --reclaim-file")
    try:
        api = KubernetesApi(Account(options.account))
    except ApiAway as error:
        raise ValueError(f"--runtime pods runs in a pod of the cluster: {error}") from error
    node = options.cluster_node
    settings = write_pod_settings(options, node)
    nodes = Follower(api, "/api/v1/nodes", {"fieldSelector": f"metadata.name={node}"})
    notices = ClusterNotices(nodes, node)
    holders = GpuHolders(api, nodes, settings)
    return _ClusterParts(PodRuntime(api, settings, nodes, holders.find_claims), holders, notices)


def _open_slurm(options: AgentOptions, users: tuple[int, ...], device: Device) -> _ClusterParts:
    """Opens Slurm, whose GPUs on its nodes are those of this machine, in the order of the PCI bus."""
    from agents.node.slurm_notices import SlurmNotices
    from agents.runtime.slurm import SlurmRuntime
    from agents.runtime.slurm_commands import SlurmCommands

    slurm, nodes = SlurmCommands(options.slurm_options), name_slurm_nodes(options)
    here = sorted(device.gpus(), key=lambda gpu: (gpu.pci, gpu.index))
    known = slurm.read_gpus_here(nodes, len(here))
    gpus = {gpu.uuid: place for gpu, place in zip(here, known, strict=True)}
    file = ReclaimFile(options.reclaim_file) if options.reclaim_file else None
    runtime = SlurmRuntime(options.folder / "copies", slurm, gpus, users)
    return _ClusterParts(runtime, None, SlurmNotices(slurm, nodes, file))


def write_pod_settings(options: AgentOptions, node: str, part: str = "copy") -> PodSettings:
    """Returns what all copies of the node have in common, or a part of the same making."""
    shows_gpus = "" if options.device == "simulated" else options.runtime_class
    data = options.models.resolve().parent
    roots = (options.folder / MPS, *(data / name for name in ("models", "checkpoints", "batches")))
    return PodSettings(
        node,
        os.geteuid(),
        os.getegid(),
        options.image,
        options.priority_class,
        shows_gpus,
        tuple(map(str, roots)),
        part,
    )


def _gateway(options: AgentOptions) -> tuple[Routes, Callable[[], Mapping[str, Counters]] | None]:
    if not options.gateway:
        return NoGateway(), None
    if options.gateway == FOLLOWED:
        return Followers(), None
    if not options.gateway.startswith(("/", "unix:/", "http://", "https://")):
        raise ValueError(
            f"--gateway {options.gateway} must be like /run/gateway.sock or https://proxy:9444, or `followed`"
        )
    if options.gateway_token_file and (refusal := plaintext_refusal(options.gateway)):
        raise ValueError(refusal)
    is_here = is_loopback(urlsplit(options.gateway).hostname or "localhost")
    if not is_here and options.runtime != "pods" and is_loopback(options.host):
        reason = f"--gateway {options.gateway} is on another machine and cannot reach copies at {options.host}"
        raise ValueError(f"{reason}; set --host to an address of this node")
    from agents.gateway.client import SidecarRoutes

    def sidecar(seconds: float) -> SidecarRoutes:
        token, trusted = options.gateway_token_file, options.gateway_ca_file
        return SidecarRoutes(options.gateway, options.node, token, trusted, seconds)

    declaring, counting = sidecar(10.0), sidecar(COUNTS_SECONDS)  # the keeper's thread declares, the watch's counts
    return declaring, counting.counters

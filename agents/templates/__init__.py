"""Templates on the node's own disk define what may run; an assignment fills their placeholders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


def format_number(value: float) -> str:
    """Formats a number without an exponent, which not every program reads."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Probe:
    """One HTTP request to a copy's own port on loopback."""

    method: str
    path: str
    body: str = ""
    seconds: float = 2.0
    port: int = 0  # 0: the copy's main port; otherwise another of its ports
    token: str = field(default="", repr=False)  # sent as a bearer token, for a copy that obeys its agent only


@dataclass(frozen=True, slots=True)
class Confined:
    """How a user's own program is kept apart from its node, beyond what holds for every copy."""

    user: int | None = None  # None: the agent's own, where the agent is not root
    host: str = "127.0.0.1"  # where a container's port is published
    port: int = 0  # the port inside a container
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # variable -> value; of pods: Secret/key


@dataclass(frozen=True, slots=True)
class AdapterProbes:
    """The requests by which a copy lists, loads and unloads its LoRA adapters."""

    list: Probe
    load: Probe  # `{adapter}` and `{adapterPath}` are filled at each use
    unload: Probe


@dataclass(frozen=True, slots=True)
class Filled:
    """A template with its placeholders filled, ready to start."""

    template: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str = ""  # for containers
    health: Probe | None = None  # 2xx: it is healthy
    warm_up: Probe | None = None  # 2xx: it has warmed up
    drain: Probe | None = None  # 2xx: it takes no new requests and exits when it has finished the others
    set_batch: Probe | None = None  # `{batch}` and `{batch_timeout_ms}` are filled at each use
    example: Probe | None = None  # answers {"path", "body"}: one request that the model can answer
    adapters: AdapterProbes | None = None
    metrics: Probe | None = None
    metrics_kind: str = ""  # gpuwright, triton, vllm, sglang, tgi
    checkpoint_signal: str = ""  # of a job: makes it save its state and exit
    checkpoint_command: tuple[str, ...] = ()  # of a job: saves its state beside it; runs before the signal
    checkpoint_seconds: float = 10.0  # that saving may take
    uses_gpu: bool = True  # False: it opens no device, so it is no client of MPS
    processes: int = 1  # of one server: the SM limit applies to each, so it is divided
    start_seconds: float = 120.0
    drain_seconds: float = 60.0
    paths: tuple[str, ...] = ()  # that callers may use
    confined: Confined | None = None  # of a user's own image or command
    folders: tuple[str, ...] = ()  # roots of its paths, which a container must see; `:ro` at the end: read-only

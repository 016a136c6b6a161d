"""What may run on this node: templates on the node's own disk, whose placeholders an assignment fills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


def number(value: float) -> str:
    """A number as programs are told it: without an exponent, which not every one reads."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Probe:
    """One HTTP request to a copy's own port on loopback."""

    method: str
    path: str
    body: str = ""
    seconds: float = 2.0
    port: int = 0  # 0: the copy's own; otherwise another of its ports


@dataclass(frozen=True, slots=True)
class Filled:
    """A template with its placeholders filled: nothing is left to decide."""

    template: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str = ""  # for containers
    health: Probe | None = None  # 2xx: it answers
    warm_up: Probe | None = None  # 2xx: it has answered like it will answer
    drain: Probe | None = None  # 2xx: it takes no new requests and exits when it has none
    set_batch: Probe | None = None  # `{batch}` and `{batch_timeout_ms}` are filled in at each use
    metrics: Probe | None = None
    metrics_kind: str = ""  # gpuwright, triton, vllm
    checkpoint_signal: str = ""  # of a job: saves its state and exits
    processes: int = 1  # of one server: the SM limit counts for each, so it is divided
    start_seconds: float = 120.0
    drain_seconds: float = 60.0
    folders: tuple[str, ...] = ()  # roots of its paths, which a container must see; `:ro` at the end: to read

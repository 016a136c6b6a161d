"""A runtime that a manifest brings along, as it travels to a node: an image or a command with all that goes with it.

The node decides whether it starts it (agents/admission); nothing here grants anything.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from agents.contract.paths import PathRules
from agents.contract.spellings import VARIABLE_PATTERN

# What the agent fills in for each copy, in arguments and in values of variables; templates have the same placeholders.
FILLED = frozenset(
    {
        "python", "host", "port", "metricsPort", "batch", "maxBatch", "batchTimeoutMs", "gpu", "gpuCount", "memoryGib",
        "copy", "copyKey",
    }
)  # fmt: skip
VOLUME = "volume."  # begins the placeholder of a volume's folder: {volume.models}

Text = Annotated[str, Meta(max_length=1000, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]
Variable = Annotated[str, Meta(pattern=rf"^{VARIABLE_PATTERN}$(?!\n)")]
Label = Annotated[str, Meta(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$(?!\n)")]
Path = Annotated[str, Meta(max_length=500, pattern=r"^(/[!-~]*)?$(?!\n)")]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class OwnProbe(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One HTTP request to the copy's own port; an answer 2xx means yes."""

    path: Path = ""  # empty: no request, which only `drain` may leave out
    method: Literal["GET", "POST", "PUT"] = "GET"
    body: Text = ""
    seconds: Seconds = 2.0  # to answer; of drain: until it has exited


class OwnProbes(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The probes that show whether a copy is up."""

    health: OwnProbe | None = None
    start_seconds: Seconds = 120.0  # from its start until it is warm


class OwnRuntime(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A server or job of a user's own: an image, or a command of the node. Exactly one of the two is given."""

    image: Annotated[str, Meta(max_length=400)] = ""
    signature: Annotated[str, Meta(max_length=100)] = ""  # of the image, for nodes that admit what a key has signed
    command: Annotated[tuple[Text, ...], Meta(max_length=100)] = ()
    args: Annotated[tuple[Text, ...], Meta(max_length=100)] = ()
    env: Annotated[dict[Variable, Text], Meta(max_length=100)] | None = None
    secrets: Annotated[dict[Variable, Label], Meta(max_length=20)] | None = None  # variable -> secret of the node
    volumes: Annotated[tuple[Label, ...], Meta(max_length=20)] = ()  # names that the node gives a folder
    port: Annotated[int, Meta(ge=0, le=65535)] = 0  # where an image listens; 0: at {port}
    probes: OwnProbes | None = None
    warmup: OwnProbe | None = None
    drain: OwnProbe | None = None
    protocol: Literal["http", "openai", "grpc"] = "http"
    paths: PathRules = ()  # that callers may use; none: all but those of health, drain and metrics

    def __hash__(self) -> int:  # a struct's own would refuse its dictionaries
        return hash(msgspec.json.encode(self, order="deterministic"))

    @property
    def argv(self) -> tuple[str, ...]:
        """The whole command line; of an image only its arguments, because the image names the program."""
        return (*self.command, *self.args)


def own_runtime(runtime: object) -> OwnRuntime | None:
    """Returns a manifest's runtime as it travels; None where it names a template, or where there is none."""
    if not isinstance(runtime, dict) or not ("image" in runtime or "command" in runtime):
        return None
    return msgspec.convert(runtime, OwnRuntime)

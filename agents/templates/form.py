"""The fields of a template file, as the types that reading checks it against."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from agents.contract.paths import PathRules

Words = Annotated[str, Meta(max_length=1000, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]
ArgName = Annotated[str, Meta(pattern=r"^[A-Za-z][-A-Za-z0-9_.]{0,62}$(?!\n)")]
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$(?!\n)")]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class _Arg(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", tag_field="type"):
    """An argument that an assignment may give, and must give if there is no default."""


class TextArg(_Arg, frozen=True, tag="text"):
    """A text that matches the whole pattern; the default may be any text."""

    pattern: Annotated[str, Meta(min_length=1, max_length=500)]
    default: Words | None = None
    longest: Annotated[int, Meta(ge=1, le=1000)] = 200


class IntegerArg(_Arg, frozen=True, tag="integer"):
    min: int
    max: int
    default: int | None = None


class NumberArg(_Arg, frozen=True, tag="number"):
    min: float
    max: float
    default: float | None = None


class ChoiceArg(_Arg, frozen=True, tag="choice"):
    of: Annotated[tuple[Words, ...], Meta(min_length=1, max_length=100)]
    default: Words | None = None


class PathArg(_Arg, frozen=True, tag="path"):
    """A file or folder under a root: absolute, or relative to the node's folder of models."""

    root: Words = "."
    new: bool = False  # a file that need not exist yet, in a folder that must
    default: Words | None = None  # "": none


Arg = TextArg | IntegerArg | NumberArg | ChoiceArg | PathArg


class ProbeForm(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One HTTP request to the copy."""

    path: Annotated[str, Meta(max_length=500, pattern=r"^/[!-~]*$(?!\n)")]
    method: Literal["GET", "POST", "PUT"] = "GET"
    body: Words = ""
    seconds: Seconds = 2.0


class MetricsForm(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The place and the format of the copy's own counts."""

    kind: Literal["gpuwright", "triton", "vllm", "sglang", "tgi"]
    path: Annotated[str, Meta(max_length=500, pattern=r"^/[!-z~]*$(?!\n)")] = "/metrics"
    port: Literal["port", "metricsPort"] = "port"
    seconds: Seconds = 2.0


class AdaptersForm(Struct, frozen=True, forbid_unknown_fields=True):
    """The requests that list, load and unload LoRA adapters; bodies have `{adapter}`, that of `load` {adapterPath}."""

    list: ProbeForm
    load: ProbeForm
    unload: ProbeForm


class TemplateForm(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One template file. docs/runtimes.md explains each field."""

    argv: Annotated[tuple[Words, ...], Meta(min_length=1, max_length=100)]
    about: Words = ""
    args: Annotated[dict[ArgName, Arg], Meta(max_length=64)] = {}
    environment: Annotated[dict[VariableName, Words], Meta(max_length=100)] = {}
    image: Annotated[str, Meta(max_length=300, pattern=r"^[-A-Za-z0-9._:/@]*$(?!\n)")] = ""
    health: ProbeForm | None = None
    warm_up: ProbeForm | None = None
    drain: ProbeForm | None = None
    set_batch: ProbeForm | None = None
    example: ProbeForm | None = None
    adapters: AdaptersForm | None = None  # none: its server holds no LoRA adapters
    metrics: MetricsForm | None = None
    checkpoint_signal: Literal["", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGINT", "SIGHUP"] = ""
    checkpoint_command: Annotated[tuple[Words, ...], Meta(max_length=100)] = ()
    checkpoint_seconds: Annotated[float, Meta(gt=0, le=3600)] = 10.0
    uses_gpu: bool = True  # false: it opens no device, so it is no client of MPS
    processes: Annotated[int, Meta(ge=1, le=64)] = 1
    measures_memory: bool = False  # its start measures what is free on its GPU, where nothing else may start meanwhile
    start_seconds: Seconds = 120.0
    drain_seconds: Seconds = 60.0
    paths: PathRules = ()  # that callers may use, through the gateway; none: no path

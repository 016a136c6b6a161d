"""The way a node starts a variant or a job: a template of the node's, or an image or a command of one's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, StrictBool, StrictFloat, StrictInt, StrictStr, Tag

from agents.contract.spellings import (
    DANGEROUS_VARIABLES,
    LONGEST_RULE,
    MOST_RULES,
    RULE,
    VARIABLE_PATTERN,
    is_dangerous,
)
from app.manifests.faults import escape, quote
from app.manifests.model import JSON
from app.manifests.quantities import LARGEST, Name, Names, Word, rule_fault
from app.manifests.spec import Contradiction, Spec

OWN = ("image", "command")
OWN_ONLY = (
    "signature",
    "env",
    "secrets",
    "volumes",
    "port",
    "probes",
    "warmup",
    "example",
    "drain",
    "protocol",
    "paths",
)
SERVER_ONLY = ("port", "probes", "warmup", "example", "drain", "protocol", "paths")
_IMAGE = re.compile(r"[a-z0-9][-a-z0-9._:/]{0,254}(@sha256:[0-9a-f]{64})?")
_SIGNATURE = re.compile(r"[A-Za-z0-9+/]{86}==")
_FIXED_PROGRAM = "{python} or an absolute path, such as /opt/shop/bin/serve"


def _text(value: str) -> str:
    if len(value) > 1_000:
        raise rule_fault(f"the string has {len(value)} characters", "at most 1,000 characters")
    if not value.isprintable():
        raise rule_fault("the string contains characters that cannot be printed", "printable characters")
    return value


def _argument(value: str | float | bool) -> str | float | bool:
    if isinstance(value, str):
        return _text(value)
    if not isinstance(value, bool) and abs(value) > LARGEST:
        raise rule_fault(f"{value:g} is too large", "a number up to 1e12")
    return value


def _image(value: str) -> str:
    if not _IMAGE.fullmatch(value):
        raise rule_fault(f"{quote(value)} is not an image", "repository:tag or, better, repository@sha256:DIGEST")
    return value


def _signature(value: str) -> str:
    if not _SIGNATURE.fullmatch(value):
        raise rule_fault(f"{quote(value)} is not a signature", "the 64 bytes of an Ed25519 signature as base64")
    return value


def _variable(name: str) -> str:
    if is_dangerous(name):
        raise rule_fault(
            f"the variable {quote(name)} can never be set, because it changes what a program runs or may use",
            f"other names than {', '.join(DANGEROUS_VARIABLES[:4])} and the like",
        )
    return name


def _path_rule(value: str) -> str:
    if len(value) > LONGEST_RULE or not re.fullmatch(RULE, value):
        allowed = "a method or *, and a path, such as POST /v1/models/{name}/infer or GET /files/**"
        raise rule_fault(f"{quote(value)} names no paths", allowed)
    return value


def _args_form(value: object) -> str:
    return "<list>" if isinstance(value, list) else "<arguments>"


# Values of a template's arguments. The node that defines the template checks its arguments and paths.
ArgumentName = Annotated[str, Field(pattern=r"^[A-Za-z][-A-Za-z0-9_.]{0,62}$")]
Argument = Annotated[StrictStr | StrictBool | StrictInt | StrictFloat, AfterValidator(_argument)]
Text = Annotated[StrictStr, AfterValidator(_text)]
Variable = Annotated[str, Field(pattern=f"^{VARIABLE_PATTERN}$"), AfterValidator(_variable)]
Arguments = Annotated[
    Annotated[dict[ArgumentName, Argument], Field(max_length=64), Tag("<arguments>")]
    | Annotated[list[Text], Field(max_length=100), Tag("<list>")],
    Discriminator(_args_form),
]
PathRule = Annotated[StrictStr, AfterValidator(_path_rule)]
UrlPath = Annotated[str, Field(pattern=r"^/[!-~]{0,499}$")]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class ProbeSpec(Spec):
    """One HTTP request to the copy's own port; an answer 2xx means yes."""

    path: UrlPath = Field(description="Path of the request")
    method: Literal["GET", "POST", "PUT"] = Field("GET", description="Method of the request")
    body: Text = Field("", description="JSON to send")
    seconds: Seconds = Field(2, description="Longest time until it has answered")


class ProbesSpec(Spec):
    """The probes by which the node sees that a server of one's own is up."""

    health: ProbeSpec | None = Field(None, description="It is up; without it, up once it accepts connections")
    start_seconds: Seconds = Field(120, description="Longest time from its start until it is warm")


class DrainSpec(Spec):
    """The way a server of one's own ends without losing a request."""

    path: UrlPath | None = Field(None, description="Asks it to finish and exit; without it, SIGTERM")
    method: Literal["GET", "POST", "PUT"] = Field("POST", description="Method of the request")
    body: Text = Field("", description="JSON to send")
    seconds: Seconds = Field(60, description="Longest time from there to its exit")


class RuntimeSpec(Spec):
    """A template of the node with typed arguments, or an image or command that the node's allow-list admits."""

    template: Word | None = Field(None, description="Name of the template on the nodes")
    args: Arguments = Field(
        default_factory=dict,
        description="Of a template: a mapping of strings, numbers, true or false. Of an image or command: a list of "
        "strings, in which nodes fill in {port}, {host}, {batch} and {volume.NAME}",
    )
    image: Annotated[StrictStr, AfterValidator(_image)] | None = Field(
        None, description="Image of a container, which names its program: repository@sha256:DIGEST"
    )
    signature: Annotated[StrictStr, AfterValidator(_signature)] | None = Field(
        None,
        description="Ed25519 signature of `gpuwright-image-v1:` and the image, for nodes that admit its key",
    )
    command: Annotated[list[Text], Field(min_length=1, max_length=100)] | None = Field(
        None, description="A program of the node, {python} or its absolute path, and its first arguments"
    )
    env: Annotated[dict[Variable, Text], Field(max_length=100)] = Field(
        default_factory=dict, description="Variables of its environment, by names that the node admits"
    )
    secrets: Annotated[dict[Variable, Name], Field(max_length=20)] = Field(
        default_factory=dict, description="Variable -> name of a secret that the node holds"
    )
    volumes: Names | None = Field(None, max_length=20, description="Names of volumes that the node gives a folder")
    port: Annotated[int, Field(ge=1, le=65_535)] | None = Field(
        None, description="Where an image listens; left out, at {port}, which the node chooses"
    )
    probes: ProbesSpec | None = Field(None, description="How the node sees that it is up")
    warmup: ProbeSpec | None = Field(None, description="A first request; 2xx: it has computed once and is warm")
    example: ProbeSpec | None = Field(None, description="A request as callers send it, with which campaigns measure it")
    drain: DrainSpec | None = Field(None, description="How it ends without losing a request")
    protocol: Literal["http", "openai", "grpc"] = Field("http", description="How the gateway talks to it")
    paths: Annotated[list[PathRule], Field(min_length=1, max_length=MOST_RULES)] | None = Field(
        None,
        description="What callers may use: a method or *, and a path, in which {x} is a segment and ** the rest. Left "
        "out, all paths but those of probes.health and drain, and /metrics",
    )


def runtime_contradictions(runtime: JSON, field: str, serves: bool = True) -> Iterator[Contradiction]:
    """Yields what cannot be true together in a runtime; `serves` is false for a job's."""
    if not isinstance(runtime, Mapping):
        return
    forms = [name for name in ("template", *OWN) if name in runtime]
    if len(forms) != 1:
        given = " and ".join(forms) if forms else "none of them"
        message = f"a runtime has exactly one form, and this one names {given}"
        yield Contradiction(field, message, "one of template, image and command")
        return
    form, args = forms[0], runtime.get("args")
    if form == "template":
        for name in OWN_ONLY:
            if name in runtime:
                yield Contradiction(f"{field}.{name}", f"a template takes no {name}", "template and args")
        if isinstance(args, list):
            yield Contradiction(f"{field}.args", "a template's arguments have names", "a mapping, such as {model: x}")
        return
    if isinstance(args, Mapping):
        yield Contradiction(f"{field}.args", f"arguments of {form} are words in order", "a list of strings")
    for name in SERVER_ONLY if not serves else ():
        if name in runtime:
            yield Contradiction(f"{field}.{name}", f"a job takes no requests, so it has no {name}", "without it")
    if form == "command":
        yield from _command_contradictions(runtime, field)
    elif "signature" in runtime and "@" not in str(runtime["image"]):
        message = "a signature is of an image by its digest; a tag can be moved"
        yield Contradiction(f"{field}.image", message, "repository@sha256:DIGEST", runtime["image"])
    yield from _variable_contradictions(runtime, field)


def _command_contradictions(runtime: Mapping[str, JSON], field: str) -> Iterator[Contradiction]:
    command = runtime.get("command")
    program = command[0] if isinstance(command, list) and command else None
    if isinstance(program, str) and program != "{python}" and not program.startswith("/"):
        yield Contradiction(f"{field}.command[0]", f"{quote(program)} is not a fixed program", _FIXED_PROGRAM, program)
    if "signature" in runtime:
        yield Contradiction(f"{field}.signature", "only an image is signed", "without it")
    if "port" in runtime:
        message = "a command listens at {port}, which the node chooses; only an image has a port of its own"
        yield Contradiction(f"{field}.port", message, "without it")


def _variable_contradictions(runtime: Mapping[str, JSON], field: str) -> Iterator[Contradiction]:
    env, secrets = runtime.get("env"), runtime.get("secrets")
    if isinstance(env, Mapping) and isinstance(secrets, Mapping):
        for name in sorted(env.keys() & secrets.keys()):
            message = f"the variable {quote(name)} is given in env and in secrets"
            yield Contradiction(f"{field}.secrets.{escape(name)}", message, "each variable once")

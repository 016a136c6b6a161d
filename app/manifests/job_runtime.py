"""The way a job's process is run: what its exit codes mean, how it saves and reports its progress, and its requests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, StrictStr, Tag

from app.manifests.faults import quote
from app.manifests.model import JSON
from app.manifests.quantities import Count, rule_fault
from app.manifests.runtime import Text, runtime_contradictions
from app.manifests.spec import Contradiction, Spec

MOST_SAVE_SECONDS = 3_600
_REQUESTS = re.compile(r"[A-Za-z0-9_][-A-Za-z0-9_.]*(/[A-Za-z0-9_][-A-Za-z0-9_.]*)*")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)

ExitCode = Annotated[int, Field(ge=0, le=255)]
Metric = Annotated[str, Field(pattern=r"^[A-Za-z_:][A-Za-z0-9_:]{0,199}$")]


def _requests(value: str) -> str:
    if _URL.match(value):
        raise rule_fault(
            f"{quote(value[:80])} is a URL, and nodes do not read requests from object storage",
            "a JSONL file, or a folder of them, below the node's folder of batches, such as prompts/monday.jsonl",
        )
    if len(value) > 500 or not _REQUESTS.fullmatch(value):
        raise rule_fault(
            f"{quote(value[:80])} is not a file below the node's folder of batches",
            "a relative path of letters, digits, -, _ and ., such as prompts/monday.jsonl",
        )
    return value


def _requests_form(value: object) -> str:
    return "<file>" if isinstance(value, str) else "<number>"


Requests = Annotated[
    Annotated[Count, Tag("<number>")] | Annotated[StrictStr, AfterValidator(_requests), Tag("<file>")],
    Discriminator(_requests_form),
]


class ExitCodesSpec(Spec):
    """The meaning of the exit codes of a job's process; any other code starts it again from its last save."""

    done: list[ExitCode] = Field([0], max_length=32, description="The job is complete")
    failed: list[ExitCode] = Field([], max_length=32, description="The job has failed, and is not started again")


class CheckpointSpec(Spec):
    """The way a job is asked to save before its process is ended."""

    signal: Literal["SIGTERM", "SIGUSR1", "SIGUSR2", "SIGINT", "SIGHUP"] | None = Field(
        None, description="Makes it save; SIGTERM, or what its template says, if left out"
    )
    command: Annotated[list[Text], Field(min_length=1, max_length=100)] | None = Field(
        None, description="A command of the node that saves beside it, with its environment; it runs before the signal"
    )
    seconds: Annotated[float, Field(gt=0, le=MOST_SAVE_SECONDS)] = Field(
        10, description="How long saving may take; then it gets SIGTERM and, as its drain time is up, SIGKILL"
    )


class ProgressSpec(Spec):
    """The metrics that count a job's progress; without them it writes the file that GPUWRIGHT_PROGRESS names."""

    metric: Metric = Field(description="Steps or requests done since the job began, in its /metrics at {port}")
    saved_metric: Metric | None = Field(None, description="Those that a new process would not repeat")


def job_contradictions(spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
    """Yields what cannot be true together in how a job runs."""
    runtime, checkpoint = spec.get("runtime"), spec.get("checkpoint")
    if "runtime" in spec:
        yield from runtime_contradictions(runtime, "runtime", serves=False)
    own = isinstance(runtime, Mapping) and ("image" in runtime or "command" in runtime)
    is_command = isinstance(runtime, Mapping) and "command" in runtime
    if isinstance(checkpoint, Mapping) and "command" in checkpoint and not is_command:
        message = "a command can save only beside a runtime that is a command, too"
        yield Contradiction("checkpoint.command", message, "checkpoint.signal")
    codes = spec.get("exitCodes")
    if isinstance(codes, Mapping):
        done, failed = codes.get("done", [0]), codes.get("failed", [])
        both = [code for code in done if code in failed] if isinstance(done, list) and isinstance(failed, list) else []
        for code in both[:1]:
            yield Contradiction("exitCodes.failed", f"exit code {code} is both done and failed", "each code once")
    yield from _requests_contradictions(spec, own)
    if spec.get("swap") is True:
        yield from _swap_contradictions(spec)


def _swap_contradictions(spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
    if spec.get("preemptible") is False:
        yield Contradiction("swap", "a job that is not preemptible never leaves its GPU", "false, or preemptible: true")
    if spec.get("gpus", 1) != 1:
        yield Contradiction("swap", "a job on several GPUs has them outside MPS, and stays on them", "false")
    if isinstance(spec.get("requests"), str):
        yield Contradiction("swap", "a job that sends requests from a file holds no GPU memory", "false")


def _requests_contradictions(spec: Mapping[str, JSON], own: bool) -> Iterator[Contradiction]:
    is_file, counted = isinstance(spec.get("requests"), str), "requestCount" in spec
    if is_file and not counted:
        yield Contradiction("requestCount", "a job whose requests are a file needs requestCount", "its number of lines")
    if counted and not is_file:
        yield Contradiction("requestCount", "requestCount counts the lines of a file of requests", "requests: a file")
    if is_file and own:
        message = "an image or command of one's own finds its requests itself"
        yield Contradiction("requests", message, "a number, or a runtime that is a template")

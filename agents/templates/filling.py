"""Fills a template with an assignment's arguments, or returns a refusal. Nothing is executed, and there is no shell.

An argument is one element of argv or a part of one, never more: the template itself fixes the program, the number of
words, the environment and the image.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeGuard
from urllib.parse import quote

from agents.contract.runtimes import FILLED
from agents.templates import AdapterProbes, Filled, Probe, format_number
from agents.templates.form import (
    AdaptersForm,
    Arg,
    ChoiceArg,
    IntegerArg,
    MetricsForm,
    NumberArg,
    PathArg,
    ProbeForm,
    TextArg,
)
from agents.templates.reading import LIVE, PLACEHOLDER, Template

_SNAKE = {"batchTimeoutMs": "batch_timeout_ms"}  # in camel case, as setBatch spells it
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Builtin:
    """The values that the agent itself fills in."""

    copy: str
    gpu: str  # UUID; of several GPUs, with commas
    port: int = 0
    metrics_port: int = 0  # for templates whose metrics have their own port
    host: str = "127.0.0.1"  # the port it listens on
    batch: int = 1
    max_batch: int = 0  # the batch that its memory is sized for; 0: `batch`
    batch_timeout_ms: float = 0.0
    memory_gib: float = 0.0  # on each GPU
    gpu_count: int = 1
    token: str = field(default="", repr=False)  # for requests that control the copy
    key: str = field(default="", repr=False)  # the same for servers that take it as an argument, which others can see

    def words(self) -> dict[str, str]:
        return {
            "python": sys.executable,
            "host": self.host,
            "port": str(self.port),
            "metricsPort": str(self.metrics_port),
            "batch": str(self.batch),
            "maxBatch": str(max(self.batch, self.max_batch)),
            "batchTimeoutMs": format_number(self.batch_timeout_ms),
            "gpu": self.gpu,
            "gpuCount": str(self.gpu_count),
            "memoryGib": format_number(self.memory_gib),
            "copy": self.copy,
            "copyKey": self.key,
        }


@dataclass(frozen=True, slots=True)
class ArgumentRefused:
    """The reason why an assignment's arguments do not fit the template."""

    reason: str  # unknown_argument, missing_argument, wrong_type, out_of_range, outside_root, no_such_file
    field: str
    message: str


def fill(template: Template, args: Mapping[str, object], builtin: Builtin) -> Filled | ArgumentRefused:
    """Returns the template ready to start. It accesses the file system only to resolve paths under their roots."""
    form = template.form
    for name in args:
        if name not in form.args:
            return _unknown(template, name)
    words = builtin.words()
    folders: list[str] = []
    for name, arg in form.args.items():
        value = args.get(name, arg.default)
        if value is None:
            return ArgumentRefused("missing_argument", name, f"{template.name} needs {name}: {_describe_allowed(arg)}")
        if isinstance(arg, PathArg):
            path = _path(template, name, arg, value)
            if isinstance(path, ArgumentRefused):
                return path
            words[name] = path
            if path:
                folders.append(f"{_root(template, arg)}{'' if arg.new else ':ro'}")
        else:
            word = _word(template, name, arg, value)
            if isinstance(word, ArgumentRefused):
                return word
            words[name] = word
    return Filled(
        template=template.name,
        argv=tuple(PLACEHOLDER.sub(lambda found: words[found[1]], word) for word in form.argv),
        environment=dict(form.environment),
        image=form.image,
        health=_probe(form.health, words),
        warm_up=_probe(form.warm_up, words, token=builtin.token),
        drain=_probe(form.drain, words, token=builtin.token),
        set_batch=_probe(form.set_batch, words, later=LIVE, token=builtin.token),
        example=_probe(form.example, words),
        adapters=_adapters(form.adapters, words, builtin.token),
        metrics=_metrics(form.metrics, builtin),
        metrics_kind=form.metrics.kind if form.metrics else "",
        checkpoint_signal=form.checkpoint_signal,
        checkpoint_command=tuple(
            PLACEHOLDER.sub(lambda found: words[found[1]], word) for word in form.checkpoint_command
        ),
        checkpoint_seconds=form.checkpoint_seconds,
        uses_gpu=form.uses_gpu,
        processes=form.processes,
        start_seconds=form.start_seconds,
        drain_seconds=form.drain_seconds,
        paths=form.paths,
        folders=tuple(dict.fromkeys(folders)),
    )


def _unknown(template: Template, name: str) -> ArgumentRefused:
    allowed = ", ".join(sorted(template.form.args)) or "none"
    why = "is filled in by the agent" if name in FILLED else "is not one of its arguments"
    return ArgumentRefused(
        "unknown_argument", _shown(name), f"{template.name}: {_shown(name)} {why}; it takes {allowed}"[:500]
    )


def _word(
    template: Template, name: str, arg: TextArg | IntegerArg | NumberArg | ChoiceArg, value: object
) -> str | ArgumentRefused:
    """Returns the value as a part of argv, or a refusal."""

    def no(reason: str) -> ArgumentRefused:
        return ArgumentRefused(reason, name, f"{name} {_shown(value)} is not {_describe_allowed(arg)}"[:500])

    if isinstance(arg, IntegerArg | NumberArg):
        if not _is_number(value) or (isinstance(arg, IntegerArg) and value != int(value)):
            return no("wrong_type")
        if not arg.min <= value <= arg.max:
            return no("out_of_range")
        return str(int(value)) if isinstance(arg, IntegerArg) else format_number(value)
    if isinstance(value, bool):
        value = "true" if value else "false"
    if not isinstance(value, str):
        return no("wrong_type")
    if isinstance(arg, ChoiceArg):
        return value if value in arg.of else no("out_of_range")
    if value == arg.default:
        return value
    if _CONTROL.search(value) or len(value) > arg.longest or not re.fullmatch(arg.pattern, value):
        return no("out_of_range")
    if value.startswith("-") and any(word.startswith(f"{{{name}}}") for word in template.form.argv):
        return ArgumentRefused("out_of_range", name, f"{name} {_shown(value)} looks like an option"[:500])
    return value


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)


def _path(template: Template, name: str, arg: PathArg, value: object) -> str | ArgumentRefused:
    """Returns the real path of a file or folder under the root, with links resolved; "" only if that is the default."""
    if not isinstance(value, str):
        return ArgumentRefused("wrong_type", name, f"{name} {_shown(value)} is not {_describe_allowed(arg)}"[:500])
    if value == "" and arg.default == "":
        return ""
    root = _root(template, arg)

    def no(reason: str, why: str) -> ArgumentRefused:
        return ArgumentRefused(reason, name, f"{name} {_shown(value)} {why}; {_describe_allowed(arg)} is allowed"[:500])

    if not value or _CONTROL.search(value) or len(value) > 1000:
        return no("wrong_type", "is not a path")
    if value.startswith(("/", "~")) or ".." in value.split("/"):
        return no("outside_root", "leaves the root")
    try:
        wanted = root / value
        if arg.new and not os.path.lexists(wanted):
            real, kind = os.path.join(os.path.realpath(wanted.parent, strict=True), wanted.name), stat.S_IFREG  # noqa: PTH118
        else:
            real = os.path.realpath(wanted, strict=True)
            kind = os.stat(real).st_mode  # noqa: PTH116
    except (OSError, ValueError):
        if not root.is_dir():
            return no("no_such_file", f"needs the folder {arg.root}, relative to the models, which does not exist")
        return no("no_such_file", "does not exist")
    if os.path.commonpath((real, root)) != str(root):
        return no("outside_root", "is a link that leaves the root")
    if not (stat.S_ISREG(kind) or (stat.S_ISDIR(kind) and not arg.new)):
        return no("no_such_file", "is not a file" if arg.new else "is neither a file nor a folder")
    return real


def _root(template: Template, arg: PathArg) -> Path:
    return Path(os.path.realpath(template.models / arg.root))


def _probe(
    form: ProbeForm | None, words: Mapping[str, str], later: frozenset[str] = frozenset(), token: str = ""
) -> Probe | None:
    """Returns the probe with its placeholders filled: quoted in the path, and as JSON text in the body."""
    if form is None:
        return None

    def in_path(found: re.Match[str]) -> str:
        return _late(found[1]) if found[1] in later else quote(words[found[1]], safe="")

    def in_body(found: re.Match[str]) -> str:
        if found[1] in later:
            return _late(found[1])
        if found[1] not in words:
            return found[0]  # JSON's own braces
        # No brace of a value can become a placeholder that is filled later.
        return json.dumps(words[found[1]])[1:-1].replace("{", "\\u007b").replace("}", "\\u007d")

    path, body = PLACEHOLDER.sub(in_path, form.path), PLACEHOLDER.sub(in_body, form.body)
    return Probe(form.method, path, body, form.seconds, token=token)


def _adapters(form: AdaptersForm | None, words: Mapping[str, str], token: str) -> AdapterProbes | None:
    if form is None:
        return None
    listing, load, unload = (_probe(each, words, token=token) for each in (form.list, form.load, form.unload))
    assert listing and load and unload
    return AdapterProbes(listing, load, unload)


def find_adapter(template: Template, name: str, path: str) -> str | ArgumentRefused:
    """Returns the real path of an adapter's folder, or why the folder of models has none."""
    return _path(template, name, PathArg(), path)


def name_adapter(probe: Probe, name: str, path: str = "") -> Probe:
    """Returns the request for one adapter."""
    values = {"adapter": name, "adapterPath": path}
    body = PLACEHOLDER.sub(
        lambda found: json.dumps(values[found[1]])[1:-1] if found[1] in values else found[0], probe.body
    )
    return replace(probe, body=body)


def _metrics(form: MetricsForm | None, builtin: Builtin) -> Probe | None:
    if form is None:
        return None
    return Probe("GET", form.path, "", form.seconds, builtin.metrics_port if form.port == "metricsPort" else 0)


def _late(name: str) -> str:
    return f"{{{_SNAKE.get(name, name)}}}"


def _describe_allowed(arg: Arg) -> str:
    if isinstance(arg, TextArg):
        return f"a text of up to {arg.longest} characters that matches {arg.pattern}"
    if isinstance(arg, IntegerArg):
        return f"a whole number {arg.min}..{arg.max}"
    if isinstance(arg, NumberArg):
        return f"a number {arg.min:g}..{arg.max:g}"
    if isinstance(arg, ChoiceArg):
        return f"one of {', '.join(arg.of)}"
    return "a relative path to a file" if arg.new else "a relative path to an existing file or folder"


def _shown(value: object) -> str:
    """Returns the value for a message: short, printable ASCII."""
    if isinstance(value, int) and abs(value) > 10**80:
        return "a number of more than 80 digits"  # Python refuses to print thousands of digits
    text = ascii(value) if isinstance(value, str | int | float) else type(value).__name__
    return text if len(text) <= 80 else text[:77] + "..."

"""Reads the templates of this node: shipped ones, and those in the operator's folder, which override by name.

Reading is strict. A template decides what is executed as the agent's user, so a file that another user could have
written, or that has a field unknown to this agent, is an error and not a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agents.contract.runtimes import FILLED
from agents.host.trusted_path import PathRefused, find_real
from agents.templates.form import Arg, ChoiceArg, IntegerArg, NumberArg, PathArg, ProbeForm, TemplateForm, TextArg
from agents.templates.strict_file import FileRefused, load_yaml, read_text

SHIPPED = Path(__file__).parent
MODELS = Path("/var/lib/gpuwright/models")
LIVE = frozenset({"batch", "batchTimeoutMs"})  # filled in at each use of setBatch
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# The agent sets these for each copy: a template that set them would lift its limits.
_OURS = re.compile(r"CUDA_MPS_.*|CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|LD_PRELOAD|LD_AUDIT")


class TemplateError(FileRefused):
    """Templates that cannot be used."""


@dataclass(frozen=True, slots=True)
class Template:
    """One template: its name, its file's content, and the node's folder that relative roots refer to."""

    name: str
    form: TemplateForm
    models: Path


def read(folder: Path | None = None, models: Path = MODELS) -> Mapping[str, Template]:
    """Returns all templates sorted by name. Raises TemplateError with every fault of every file."""
    found, faults = read_usable(folder, models)
    if faults:
        raise TemplateError(faults)
    return found


def read_usable(folder: Path | None, models: Path) -> tuple[Mapping[str, Template], list[str]]:
    """Returns the valid templates and the faults of the others: one bad file does not stop the node."""
    found: dict[str, Template] = {}
    faults: list[str] = []
    for place in (SHIPPED, folder):
        if place is None:
            continue
        try:
            for path in _files(place):
                try:
                    found[path.stem] = read_one(path, models)
                except FileRefused as error:
                    found.pop(path.stem, None)  # the template that it overrides is not wanted either
                    faults += error.faults
        except OSError as error:
            faults.append(f"{place}: {error.strerror or error}")
        except FileRefused as error:
            faults += error.faults
    return dict(sorted(found.items())), faults


def read_one(path: Path, models: Path) -> Template:
    """Reads one template file, whose name is the template's. Raises TemplateError."""
    try:
        text = read_text(path, path.parent == SHIPPED)
    except FileRefused as error:
        raise TemplateError(error.faults) from error
    except OSError as error:
        raise TemplateError([f"{path}: {error.strerror or error}"]) from error
    form = parse(text, path.stem, str(path))
    return Template(path.stem, form, models)


def parse(text: str, name: str, where: str) -> TemplateForm:
    """Parses and checks a template file; `where` begins each fault."""
    if not _NAME.fullmatch(name):
        raise TemplateError([f"{where}: the file must be named LABEL.yaml with a DNS label; {name!r} is not one"])
    try:
        form = msgspec.convert(load_yaml(text, where), TemplateForm)
    except FileRefused as error:
        raise TemplateError(error.faults) from error
    except msgspec.ValidationError as error:
        raise TemplateError([f"{where}: {error}"]) from error
    faults = [f"{where}: {fault}" for fault in find_faults(form)]
    if faults:
        raise TemplateError(faults)
    return form


def find_faults(form: TemplateForm) -> list[str]:
    """Returns the faults that types cannot find: unknown placeholders, unused arguments, ranges and defaults."""
    faults = [fault for name, arg in form.args.items() for fault in _arg_faults(name, arg)]
    probes = {"health": form.health, "warmUp": form.warm_up, "drain": form.drain, "setBatch": form.set_batch}
    probes["example"] = form.example
    if form.adapters:
        probes |= {f"adapters.{name}": getattr(form.adapters, name) for name in ("list", "load", "unload")}
        faults += [
            f"adapters.{field}: the body does not contain {{{name}}}"
            for field, name in (("load", "adapter"), ("load", "adapterPath"), ("unload", "adapter"))
            if f"{{{name}}}" not in getattr(form.adapters, field).body
        ]
    texts = [(f"argv[{at}]", word) for at, word in enumerate(form.argv)]
    texts += [(f"checkpointCommand[{at}]", word) for at, word in enumerate(form.checkpoint_command)]
    texts += [(f"{field}.path", probe.path) for field, probe in probes.items() if probe]
    known = FILLED | form.args.keys()
    used: set[str] = set()
    for field, text in texts:
        used |= set(PLACEHOLDER.findall(text))
        faults += [
            f"{field}: placeholder {{{name}}} is neither declared in args nor one of {', '.join(sorted(FILLED))}"
            for name in PLACEHOLDER.findall(text)
            if name not in known
        ]
        if re.search(r"[{}]", PLACEHOLDER.sub("", text)):
            faults.append(f"{field}: unmatched brace in {text!r}")
    for probe in probes.values():
        used |= body_placeholders(probe, known)
    faults += [f"args.{name}: no placeholder {{{name}}} uses it" for name in form.args if name not in used]
    if set(PLACEHOLDER.findall(form.argv[0])) - {"python"} or not form.argv[0]:
        faults.append("argv[0]: the program must be fixed, or {python}; no argument may choose it")
    if form.checkpoint_command and (
        set(PLACEHOLDER.findall(form.checkpoint_command[0])) - {"python"} or not form.checkpoint_command[0]
    ):
        faults.append("checkpointCommand[0]: the program must be fixed, or {python}; no argument may choose it")
    if form.checkpoint_command and form.image:
        faults.append("checkpointCommand: a container cannot be entered; use checkpointSignal")
    if form.set_batch and "batch" not in body_placeholders(form.set_batch, known) | set(
        PLACEHOLDER.findall(form.set_batch.path)
    ):
        faults.append("setBatch: neither path nor body contains {batch}")
    faults += [
        f"environment.{name}: set by the agent for each copy; a template cannot set it"
        for name in form.environment
        if _OURS.fullmatch(name)
    ]
    return faults


def body_placeholders(probe: ProbeForm | None, known: Iterable[str]) -> set[str]:
    """Finds placeholders in a body, whose JSON has braces of its own: only known names count."""
    return set(PLACEHOLDER.findall(probe.body)) & set(known) if probe else set()


def _arg_faults(name: str, arg: Arg) -> list[str]:
    at = f"args.{name}"
    if name in FILLED:
        return [f"{at}: {{{name}}} is filled in by the agent; rename the argument"]
    if isinstance(arg, TextArg):
        try:
            re.compile(arg.pattern)
        except re.error as error:
            return [f"{at}.pattern: {error}"]
    elif isinstance(arg, IntegerArg | NumberArg):
        if not arg.min <= arg.max:
            return [f"{at}: min {arg.min:g} is above max {arg.max:g}"]
        if arg.default is not None and not arg.min <= arg.default <= arg.max:
            return [f"{at}.default: {arg.default:g} is outside {arg.min:g}..{arg.max:g}"]
    elif isinstance(arg, ChoiceArg):
        if arg.default is not None and arg.default not in arg.of:
            return [f"{at}.default: {arg.default!r} is not one of {', '.join(arg.of)}"]
    elif isinstance(arg, PathArg) and arg.default and (arg.default.startswith("/") or ".." in arg.default.split("/")):
        return [f"{at}.default: {arg.default!r} must lie under the root"]
    return []


def _files(folder: Path) -> list[Path]:
    try:
        if folder != SHIPPED and folder.exists():
            find_real(str(folder.absolute()))
    except PathRefused as error:
        raise FileRefused([str(error)]) from error
    return sorted(path for path in folder.iterdir() if path.suffix == ".yaml")

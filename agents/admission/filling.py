"""Turns a user's own runtime into what a runtime starts, if this node's allow-list admits it; or says what it refuses.

The agent alone decides this, from its own file. Nothing is executed, and there is no shell.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from agents.admission.programs import find_unsafe
from agents.admission.reading import INSIDE, AllowList, find_forbidden
from agents.contract.admitted import AdmittedEntry, find_not_admitted
from agents.contract.paths import make_rule
from agents.contract.runtimes import VOLUME, OwnProbe, OwnRuntime
from agents.host.trusted_path import PathRefused, open_trusted
from agents.templates import Confined, Filled, Probe
from agents.templates.filling import ArgumentRefused, Builtin
from agents.templates.strict_file import FileRefused, read_text

NOT_ADMITTED = "not_admitted"
OWN = "own"  # stands for the template's name
METRICS = "/metrics"  # where servers have their counts, which are not callers' business
CONNECT = "CONNECT"  # a probe that only opens a connection
_PLACEHOLDER = re.compile(r"\{([A-Za-z]+|volume\.[a-z0-9-]+)\}")
_ANYWHERE = "0.0.0.0"  # noqa: S104  inside a container, whose port is published at one address only


def fill_own(
    allow_list: AllowList, runtime: OwnRuntime, builtin: Builtin, kind: str, serves: bool = True
) -> Filled | ArgumentRefused:
    """Returns the runtime ready to start on this node, or the first thing that the node does not admit."""
    entries = allow_list.startable_by(kind)
    if bool(runtime.image) == bool(runtime.command):
        return _refuse("runtime", "an own runtime is an image or a command, and exactly one of them")
    refused = find_not_admitted(entries, runtime)
    if refused:
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        return _refuse(refused[0].field, refused[0].message + more)
    unsafe = "" if runtime.image else find_unsafe(fill_program(runtime.argv))
    if unsafe:
        return _refuse("command", unsafe)
    folders: dict[str, str] = {}
    for name in runtime.volumes:
        try:
            folders[name] = find_folder(allow_list, name)
        except PathRefused as error:
            return _refuse("volumes", f"the volume {name} cannot be used: {error}")
    secrets: dict[str, str] = {}
    for variable, name in (runtime.secrets or {}).items():
        try:
            secrets[variable] = _name_secret(allow_list, name) if kind == "pods" else _secret(allow_list, name)
        except FileRefused as error:
            return _refuse("secrets", f"the secret {name} cannot be read: {error.faults[0]}")
    words = _words(allow_list, runtime, builtin, folders)
    return _fill(allow_list, runtime, words, secrets, folders, builtin, serves)


def check_command(allow_list: AllowList, argv: tuple[str, ...], kind: str) -> ArgumentRefused | None:
    """Returns why the node does not admit a further command of a job, such as the one that saves; None if it does."""
    refused = find_not_admitted(allow_list.startable_by(kind), OwnRuntime(command=argv))
    message = refused[0].message if refused else find_unsafe(fill_program(argv))
    return _refuse("checkpoint.command", message) if message else None


def _fill(
    allow_list: AllowList,
    runtime: OwnRuntime,
    words: Mapping[str, str],
    secrets: Mapping[str, str],
    folders: Mapping[str, str],
    builtin: Builtin,
    serves: bool,
) -> Filled:
    probes, drain = runtime.probes, runtime.drain
    health = probes.health if probes else None
    start_seconds = probes.start_seconds if probes else 120.0
    connects = Probe(CONNECT, "", seconds=2.0) if serves and health is None else None
    return Filled(
        template=OWN,
        argv=tuple(_put_in(word, words) for word in runtime.argv),
        environment={name: _put_in(value, words) for name, value in (runtime.env or {}).items()},
        image=runtime.image,
        health=_probe(health) or connects,
        warm_up=_probe(runtime.warmup, builtin.token),
        drain=_probe(drain, builtin.token) if drain and drain.path else None,
        start_seconds=start_seconds,
        drain_seconds=drain.seconds if drain else 60.0,
        paths=list_admitted_paths(runtime),
        folders=tuple(_name_mounted(allow_list, *found) for found in folders.items()) if runtime.image else (),
        confined=Confined(
            user=allow_list.user,
            host=builtin.host,
            port=int(words["port"]) if runtime.image else 0,
            secrets=secrets,
        ),
    )


def list_admitted_paths(runtime: OwnRuntime) -> tuple[str, ...]:
    """Returns the rules of a manifest, or else rules that admit every path but those of the agent's own requests."""
    if runtime.paths:
        return runtime.paths
    health = runtime.probes.health if runtime.probes else None
    asked = (health.path if health else "", runtime.drain.path if runtime.drain else "", METRICS)
    return ("* /**", *(f"!* {make_rule(path)}" for path in dict.fromkeys(asked) if path))


def _words(allow_list: AllowList, runtime: OwnRuntime, builtin: Builtin, folders: Mapping[str, str]) -> dict[str, str]:
    """Returns what the agent fills in; a container has its own address and, if the image says so, its own port."""
    words = builtin.words()
    for name in runtime.volumes:
        inside = allow_list.volumes[name].at or f"{INSIDE}/{name}"
        words[f"{VOLUME}{name}"] = inside if runtime.image else folders[name]
    if runtime.image:
        words |= {"host": _ANYWHERE, "port": str(runtime.port or builtin.port)}
    return words


def fill_program(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the words of a command with the one placeholder that may name a program."""
    return (sys.executable if argv[0] == "{python}" else argv[0], *argv[1:])


def _put_in(text: str, words: Mapping[str, str]) -> str:
    """Fills in what is known; other braces, as those of JSON, stay."""
    return _PLACEHOLDER.sub(lambda found: words.get(found[1], found[0]), text)


def _name_mounted(allow_list: AllowList, name: str, folder: str) -> str:
    volume = allow_list.volumes[name]
    return f"{folder}:{volume.at or f'{INSIDE}/{name}'}:{'rw' if volume.write else 'ro'}"


def _probe(form: OwnProbe | None, token: str = "") -> Probe | None:
    return Probe(form.method, form.path, form.body, min(form.seconds, 120.0), token=token) if form else None


def _name_secret(allow_list: AllowList, name: str) -> str:
    """Returns the Secret and its key that Kubernetes gives the pod: the agent does not see the content."""
    place = allow_list.secrets[name]
    if place.startswith("/"):
        raise FileRefused([f"{place} is a file; of a pod it is a Secret of its namespace and a key, as models/token"])
    return place


def _secret(allow_list: AllowList, name: str) -> str:
    """Returns the content of a secret's file, which others must be able neither to read nor to replace."""
    path = Path(allow_list.secrets[name])
    if not path.is_absolute():
        raise FileRefused([f"{path} is no file of this node; Secrets of Kubernetes are for pods"])
    try:
        if path.stat().st_mode & stat.S_IROTH:
            raise FileRefused([f"{path} is readable by everyone; run chmod o-r"])
        return read_text(path).rstrip("\n")
    except OSError as error:
        raise FileRefused([f"{path}: {error.strerror or error}"]) from error


def _refuse(field: str, message: str) -> ArgumentRefused:
    return ArgumentRefused(NOT_ADMITTED, field, message[:400])


def find_unusable(allow_list: AllowList, kind: str) -> list[str]:
    """Returns the programs and volumes that the list admits and that this node would refuse as they are now."""
    found = []
    for entry in allow_list.startable_by(kind):
        unsafe = "" if entry.is_of_images else find_unsafe(fill_program(entry.argv))
        found += [f"admit.{entry.name}: {unsafe}"] if unsafe else []
    for name in allow_list.volumes:
        try:
            find_folder(allow_list, name)
        except PathRefused as error:
            found.append(f"volumes.{name}: {error}")
    return found


def entry_names(entries: tuple[AdmittedEntry, ...]) -> str:
    """Returns the entries' names, for a log."""
    return ", ".join(entry.name for entry in entries) or "nothing"


def find_folder(allow_list: AllowList, name: str) -> str:
    """Returns the real path of the volume's folder, without links. Raises PathRefused.

    The folder of a volume that copies write may belong to them; what leads to it may not.
    """
    real = _real_folder(allow_list, name)
    forbidden = find_forbidden(real, allow_list.kept, allow_list.models)
    if forbidden:
        raise PathRefused(f"{real} {forbidden}")
    for other, volume in allow_list.volumes.items():
        if volume.write and other != name and f"{real}/".startswith(f"{os.path.realpath(volume.folder)}/"):
            raise PathRefused(f"{real} lies in the volume {other}, where copies could replace it")
    return real


def _real_folder(allow_list: AllowList, name: str) -> str:
    volume = allow_list.volumes[name]
    with open_trusted(volume.folder, is_end_shared=volume.write) as found:
        if not found.is_folder:
            raise PathRefused(f"{volume.folder} is not a folder")
        return found.real

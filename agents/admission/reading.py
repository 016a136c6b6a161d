"""Reads the node's allow-list. Reading is strict: a file with one fault admits nothing at all."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from agents.admission.interpreters import find_program_faults, find_scripts
from agents.contract.admitted import MOST_ENTRIES, AdmittedEntry, PatternFault, read_pattern
from agents.contract.runtimes import VOLUME, Label, Text, Variable
from agents.contract.signatures import KeyFault, read_key
from agents.contract.spellings import is_dangerous
from agents.templates.strict_file import FileRefused, load_yaml, read_text

_DIGEST = re.compile(r"[a-z0-9][-a-z0-9._:/]{0,254}@sha256:[0-9a-f]{64}")
_REPOSITORY = re.compile(r"[a-z0-9][-a-z0-9.]*(:[0-9]{1,5})?(/[a-z0-9][-a-z0-9._]*)*")
# No volume may be, contain or lie in one of these.
SYSTEM_FOLDERS = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/usr",
    "/var/run", "/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet", "/var/log", "/var/spool",
)  # fmt: skip
# No volume may be or contain one of these.
SHARED_FOLDERS = ("/home", "/tmp", "/var/tmp")  # noqa: S108
SHARED_MEMORY = "/dev/shm/"  # noqa: S108  the one folder of /dev whose subfolders are plain ones
INSIDE = "/volumes"


@dataclass(frozen=True, slots=True)
class AllowList:
    """The entries that this node admits; empty where it has no allow-list."""

    entries: tuple[AdmittedEntry, ...] = ()
    volumes: Mapping[str, VolumeForm] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)  # name -> file; of pods: Secret of their namespace/key
    user: int | None = None  # None: as the agent
    says_user: bool = False  # an agent that is root needs the name of the user that copies run as
    kept: tuple[str, ...] = ()  # the agent's own folder and this file, which no volume may be, contain or lie in
    models: str = ""  # the folder of models, which may be a volume even where the agent's folder contains it

    def startable_by(self, runtime: str) -> tuple[AdmittedEntry, ...]:
        """Returns the entries that the node's runtime can start: it has containers or processes, not both."""
        return tuple(entry for entry in self.entries if entry.is_of_images == (runtime != "process"))


def read_allow_list(path: Path, folder: Path | None = None, models: Path | None = None) -> AllowList:
    """Reads the file, for an agent with this state folder and models. Raises FileRefused with every fault."""
    try:
        text = read_text(path)
    except OSError as error:
        raise FileRefused([f"{path}: {error.strerror or error}"]) from error
    kept = tuple(str(own.resolve()) for own in (path, folder) if own is not None)
    return replace(parse(text, str(path)), kept=kept, models=str(models.resolve()) if models else "")


def parse(text: str, where: str) -> AllowList:
    """Parses and checks an allow-list; `where` begins each fault."""
    try:
        form = msgspec.convert(load_yaml(text, where), AllowListForm)
    except msgspec.ValidationError as error:
        raise FileRefused([f"{where}: {error}"]) from error
    faults = [f"{where}: {fault}" for fault in find_faults(form)]
    if faults:
        raise FileRefused(faults)
    entries = tuple(_entry(name, entry) for name, entry in sorted(form.admit.items()))
    user = None if form.user == "agent" else form.user
    return AllowList(entries, form.volumes, form.secrets, user, form.user is not None)


def _entry(name: str, form: EntryForm) -> AdmittedEntry:
    argv = form.argv if form.argv is not None else form.args or ()
    environment, secrets = form.environment or None, form.secrets or None
    return AdmittedEntry(name, argv, form.image, form.repository, form.key, environment, secrets, form.volumes)


def find_faults(form: AllowListForm) -> list[str]:
    """Returns the faults that types cannot find."""
    faults = [fault for name, entry in form.admit.items() for fault in _entry_faults(f"admit.{name}", entry, form)]
    for name, volume in form.volumes.items():
        faults += _folder_faults(f"volumes.{name}.folder", volume.folder)
        faults += _folder_faults(f"volumes.{name}.at", volume.at) if volume.at else []
    faults += [fault for name, file in form.secrets.items() for fault in _plain_faults(f"secrets.{name}", file)]
    return [*faults, *_overlap_faults(form)]


def user_fault(found: AllowList, under_mps: bool) -> str:
    """Returns why copies cannot run as the list's user here; empty if they can."""
    own, user = os.geteuid(), found.user
    if own == 0 and not found.says_user:
        return (
            "user: this agent is root; name the UID that users' commands run as, or write `user: agent` if root it is"
        )
    if own not in (0, user) and user is not None:
        return f"user: only an agent that is root can start copies as {user}; this one is {own}"
    if user not in (None, own) and under_mps:
        return f"user: an MPS daemon serves its own user only; run the agent itself as {user} and leave user out"
    return ""


def _entry_faults(at: str, entry: EntryForm, form: AllowListForm) -> Iterator[str]:
    if sum((entry.argv is not None, bool(entry.image), bool(entry.repository))) != 1:
        yield f"{at}: has exactly one of argv (a command), image and repository"
        return
    yield from _image_faults(at, entry)
    if entry.argv is None and entry.unsafe:
        yield f"{at}.unsafe: belongs to argv"
    if entry.argv is not None and entry.args is not None:
        yield f"{at}.args: belongs to an image; argv has all words of a command"
    if entry.argv is not None:
        yield from find_program_faults(at, entry.argv, entry.unsafe)
    words = entry.argv if entry.argv is not None else entry.args or ()
    field_name = "argv" if entry.argv is not None else "args"
    patterns = [(f"{at}.{field_name}[{index}]", word) for index, word in enumerate(words)]
    patterns += [(f"{at}.environment.{name}", pattern) for name, pattern in entry.environment.items()]
    for place, pattern in patterns:
        yield from _pattern_faults(place, pattern, entry)
    yield from _reference_faults(at, entry, form)


def _image_faults(at: str, entry: EntryForm) -> Iterator[str]:
    if entry.image and not _DIGEST.fullmatch(entry.image):
        yield f"{at}.image: {entry.image!r} must be pinned, as repository@sha256:DIGEST; a tag can be moved"
    if entry.repository and not _REPOSITORY.fullmatch(entry.repository):
        yield f"{at}.repository: {entry.repository!r} must be a registry and a path, such as registry.example.com/shop"
    if bool(entry.key) != bool(entry.repository):
        yield f"{at}.key: a repository needs the key that signs its images, and nothing else has one"
    elif entry.key:
        try:
            read_key(entry.key)
        except KeyFault as error:
            yield f"{at}.key: {error}"


def _reference_faults(at: str, entry: EntryForm, form: AllowListForm) -> Iterator[str]:
    for name in (*entry.environment, *entry.secrets):
        if is_dangerous(name):
            yield f"{at}: the variable {name} can never be admitted: it changes what a program runs or may use"
    for name in entry.secrets.keys() & entry.environment.keys():
        yield f"{at}.secrets.{name}: is in environment, too"
    for kept in entry.secrets.values():
        if kept not in form.secrets:
            yield f"{at}.secrets: {kept} is not one of {', '.join(form.secrets) or 'none'}"
    for volume in entry.volumes:
        if volume not in form.volumes:
            yield f"{at}.volumes: {volume} is not one of {', '.join(form.volumes) or 'none'}"


def _overlap_faults(form: AllowListForm) -> Iterator[str]:
    """Finds paths inside a volume that copies may write: they could put a link to any file of the node there."""
    writable = {name: volume.folder.rstrip("/") + "/" for name, volume in form.volumes.items() if volume.write}
    places = {f"volumes.{name}.folder": volume.folder.rstrip("/") for name, volume in form.volumes.items()}
    places |= {f"secrets.{name}": file for name, file in form.secrets.items()}
    for name, entry in form.admit.items():
        argv = entry.argv or ("",)
        places |= {f"admit.{name}.argv[{at}]": argv[at] for at in (0, *find_scripts(argv))}
    for place, path in places.items():
        for name, folder in writable.items():
            if path.startswith(folder):
                yield f"{place}: {path} lies in the volume {name}, where copies could replace it"


def _pattern_faults(place: str, pattern: str, entry: EntryForm) -> Iterator[str]:
    try:
        read_pattern(pattern)
    except PatternFault as error:
        yield f"{place}: {error}"
        return
    for name in re.findall(rf"\{{{re.escape(VOLUME)}([^{{}}]*)\}}", pattern):
        if name not in entry.volumes:
            yield f"{place}: {{{VOLUME}{name}}} is not one of the entry's volumes"


def _folder_faults(at: str, folder: str) -> list[str]:
    faults = _plain_faults(at, folder)
    forbidden = find_forbidden(folder)
    return [*faults, f"{at}: {folder} {forbidden}"] if forbidden else faults


def find_forbidden(folder: str, kept: Sequence[str] = (), models: str = "") -> str:
    """Returns why no volume may have the folder; empty if one may."""
    inside = f"{folder.rstrip('/')}/"
    closed = () if models and inside.startswith(f"{models}/") else tuple(kept)
    for system in closed if folder.startswith(SHARED_MEMORY) else (*closed, *SYSTEM_FOLDERS):
        if inside.startswith(f"{system}/") or f"{system}/".startswith(inside):
            return f"is, contains or lies in {system}, which no copy may see"
    shared = next((shared for shared in SHARED_FOLDERS if f"{shared}/".startswith(inside)), "")
    return f"is or contains {shared}, which belongs to many; name a folder in it" if shared else ""


def _plain_faults(at: str, path: str) -> list[str]:
    return [f"{at}: {path} must be a plain absolute path"] if os.path.normpath(path) != path.rstrip("/") else []


Folder = Annotated[str, Meta(min_length=2, max_length=500, pattern=r"^/[^\x00-\x1f\x7f:]*$(?!\n)")]

# A file of the node, or where copies are pods, a Secret of their namespace and a key of it.
SecretPlace = Annotated[str, Meta(max_length=500, pattern=r"^(/[^\x00-\x1f\x7f:]+|[a-z0-9][-a-z0-9.]*/[-.\w]+)$(?!\n)")]


class VolumeForm(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A folder of the node under a name; a container mounts it at `at`."""

    folder: Folder
    at: Folder | None = None  # left out: /volumes/NAME
    write: bool = False


class EntryForm(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One command line, one image with its arguments, or all signed images of a repository; and what may go along."""

    argv: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=100)] | None = None
    image: Annotated[str, Meta(max_length=400)] = ""
    repository: Annotated[str, Meta(max_length=400)] = ""
    key: Annotated[str, Meta(max_length=100)] = ""  # whose signatures count for the repository
    args: Annotated[tuple[Text, ...], Meta(max_length=100)] | None = None
    unsafe: bool = False  # a free hole may come before argv's first fixed word
    about: Text = ""
    environment: Annotated[dict[Variable, Text], Meta(max_length=100)] = {}
    secrets: Annotated[dict[Variable, Label], Meta(max_length=20)] = {}
    volumes: Annotated[tuple[Label, ...], Meta(max_length=20)] = ()


class AllowListForm(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The whole file. docs/own-servers.md explains each field."""

    admit: Annotated[dict[Label, EntryForm], Meta(min_length=1, max_length=MOST_ENTRIES)]
    volumes: Annotated[dict[Label, VolumeForm], Meta(max_length=100)] = {}
    secrets: Annotated[dict[Label, SecretPlace], Meta(max_length=100)] = {}
    user: Annotated[int, Meta(ge=1, le=2**31 - 2)] | Literal["agent"] | None = None  # whom copies run as

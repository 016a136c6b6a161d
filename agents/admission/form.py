"""The fields of an allow-list, as the types that reading checks it against."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from agents.contract.admitted import MOST_ENTRIES
from agents.contract.runtimes import Label, Text, Variable

Folder = Annotated[str, Meta(min_length=2, max_length=500, pattern=r"^/[^\x00-\x1f\x7f:]*$(?!\n)")]


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
    secrets: Annotated[dict[Label, Folder], Meta(max_length=100)] = {}  # name -> file
    user: Annotated[int, Meta(ge=1, le=2**31 - 2)] | Literal["agent"] | None = None  # whom copies run as

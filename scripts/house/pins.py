"""What is locked: every requirement is pinned and hashed, names no host, and agrees with pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from scripts.house.tree import Fault, Tree, line_of

PIN = re.compile(r"^([\w.-]+(?:\[[\w,-]+\])?)==(\S+)", re.MULTILINE)


def every_requirement_is_pinned_and_hashed_and_names_no_host(tree: Tree) -> Iterator[Fault]:
    for path in list_locked_files(tree):
        text, name = path.read_text(), tree.name_of(path)
        yield from (Fault(name, line_of(text, found.start()), "a host") for found in re.finditer("://", text))
        for block in re.finditer(r"^\S(?:.*\n?)(?:^[ \t].*\n?|^\n)*", text, re.MULTILINE):
            if not PIN.match(block[0]) or "--hash=sha256:" not in block[0]:
                yield Fault(name, line_of(text, block.start()), f"not pinned and hashed: {block[0].splitlines()[0]}")


def what_the_projects_ask_for_is_locked(tree: Tree) -> Iterator[Fault]:
    for name, (project, requirements) in read_declared(tree).items():
        versions = {pinned.split("[")[0]: version for pinned, version in read_pins(tree, name).items()}
        for requirement in map(Requirement, requirements):
            version = versions.get(requirement.name.lower())
            if not version or not requirement.specifier.contains(version):
                found = version or "nothing"
                yield Fault(project, 1, f"{requirement}: requirements/{name}.txt has {found}; run make lock")


def no_two_requirement_files_disagree_on_a_version(tree: Tree) -> Iterator[Fault]:
    first: dict[str, tuple[str, str]] = {}
    for path in list_locked_files(tree):
        for pinned, version in read_pins(tree, path.stem).items():
            kept, where = first.setdefault(pinned.split("[")[0], (version, path.stem))
            if kept != version:
                yield Fault(tree.name_of(path), 1, f"{pinned}=={version}, but {kept} in {where}.txt")


def development_has_all_that_up_installs(tree: Tree) -> Iterator[Fault]:
    up, parts = (
        read_pins(tree, "up").keys(),
        {name for part in ("server", "solvers", "agent") for name in read_pins(tree, part)},
    )
    for name in sorted(up - read_pins(tree, "dev").keys()):
        yield Fault("requirements/dev.txt", 1, f"lacks {name}, which `make up` installs")
    for name in sorted(up ^ parts):
        yield Fault("requirements/up.txt", 1, f"{name} is in it or in server, solvers and agent, but not in both")


def read_declared(tree: Tree) -> dict[str, tuple[str, list[str]]]:
    """Returns what each set of requirements is compiled from, with the file that declares it."""
    project = tomllib.loads(tree.text("pyproject.toml"))["project"]
    lab = tomllib.loads(tree.text("lab/pyproject.toml"))["project"]
    own = {"client": project["dependencies"], **project["optional-dependencies"]}
    others = [dependency for dependency in lab["dependencies"] if not dependency.startswith("gpuwright")]
    return {name: ("pyproject.toml", asked) for name, asked in own.items()} | {"lab": ("lab/pyproject.toml", others)}


def list_locked_files(tree: Tree) -> list[Path]:
    return tree.files("requirements/*.txt")


def read_pins(tree: Tree, name: str) -> dict[str, str]:
    return dict(PIN.findall(tree.text(f"requirements/{name}.txt")))


RULES = (
    every_requirement_is_pinned_and_hashed_and_names_no_host,
    what_the_projects_ask_for_is_locked,
    no_two_requirement_files_disagree_on_a_version,
    development_has_all_that_up_installs,
)

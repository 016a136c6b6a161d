"""The one recipe of the images: what it copies exists, what is installed is hashed, and nothing runs as root."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[2]
FINAL = ("agent", "gateway", "api", "planner", "kit")
KNOWN = {"ARG", "FROM", "WORKDIR", "RUN", "COPY", "ENV", "USER", "ENTRYPOINT", "CMD"}
Line = tuple[str, str]


def instructions() -> list[Line]:
    """Each instruction and its words."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.strip() and line[0] != "#"]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(line.split(maxsplit=1)[0], " ".join(line.split(maxsplit=1)[1].split())) for line in joined]


def stages() -> dict[str, tuple[str, list[Line]]]:
    """By name: what a stage begins with, and its instructions."""
    made: dict[str, tuple[str, list[Line]]] = {}
    name = ""
    for instruction, words in instructions():
        if instruction == "FROM":
            base, _, name = words.split()
            made[name] = (base, [])
        elif name:
            made[name][1].append((instruction, words))
    return made


def lineage(name: str) -> list[Line]:
    """The instructions of a stage after those that it begins with."""
    base, own = stages()[name]
    return [*(lineage(base) if base in stages() else []), *own]


def reaches_builder(name: str) -> bool:
    """Whether .dockerignore lets a file or folder through: of its lines that match, the last decides."""
    path = PurePosixPath(name)
    through = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if pattern and pattern[0] != "#" and any(_matches(one, pattern) for one in (path, *path.parents)):
            through = line.startswith("!")
    return through


def _matches(path: PurePosixPath, pattern: str) -> bool:
    return len(path.parts) == len(PurePosixPath(pattern).parts) and path.match(pattern)


def test_every_instruction_is_one_that_any_builder_knows() -> None:
    assert {name for name, _ in instructions()} <= KNOWN
    for name, words in instructions():
        if name in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(word, str) for word in json.loads(words))


def test_every_image_has_one_base_that_is_of_a_stated_version() -> None:
    bases = {base for base, _ in stages().values() if base not in stages()}
    assert bases == {"${BASE}"}
    assert instructions()[0][0] == "ARG"
    assert re.fullmatch(r"BASE=docker\.io/library/debian:\d+\.\d+-slim", instructions()[0][1])


def test_what_is_copied_is_here_and_reaches_the_builder() -> None:
    copied = [words.split() for name, words in instructions() if name == "COPY" and "--from" not in words]
    sources = {source for words in copied for source in words[:-1]}
    assert [source for source in sorted(sources) if not (ROOT / source).exists()] == []
    assert [source for source in sorted(sources - {"."}) if not reaches_builder(source)] == []


def test_all_that_the_wheel_is_made_of_is_here_and_reaches_the_builder() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = ["pyproject.toml", "LICENSE", project["project"]["readme"], *wheel["packages"], *wheel["force-include"]]
    assert [name for name in needed if not (ROOT / name).exists()] == []
    assert [name for name in needed if not reaches_builder(name)] == []


@pytest.mark.parametrize("name", ["tests", "docs", "examples/training/train.py", ".git/config", ".venv/bin/python"])
def test_what_no_image_is_made_of_does_not_reach_the_builder(name: str) -> None:
    assert not reaches_builder(name)


@pytest.mark.parametrize("name", FINAL)
def test_an_image_ends_as_nobody_in_particular(name: str) -> None:
    users = [words for instruction, words in lineage(name) if instruction == "USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]), "a number: Kubernetes cannot tell that a name is not root"
    assert not any("pip" in words or "gcc" in words for instruction, words in lineage(name) if instruction == "RUN")


def test_all_that_is_downloaded_is_hashed() -> None:
    lines = [line for name, words in instructions() if name == "RUN" for line in re.split("&&|;", words)]
    installs = [line for line in lines if re.search(r"\bpip\b.*\binstall\b", line)]
    assert installs
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)

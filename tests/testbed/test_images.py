"""The one recipe of the images: what it copies exists, what is installed is hashed, and nothing runs as root."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FINAL = ("agent", "gateway", "api", "planner")
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


def test_what_is_copied_is_here_reaches_the_builder_and_is_all_that_the_wheel_needs() -> None:
    copied = [words.split() for name, words in instructions() if name == "COPY" and "--from" not in words]
    sources = {source for words in copied for source in words[:-1]}
    assert [source for source in sorted(sources) if not (ROOT / source).exists()] == []
    let = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for source in sources:
        assert any(Path(source).match(pattern) for pattern in let), f"{source} is kept from the builder"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert packages <= sources
    assert project["project"]["readme"] in sources


@pytest.mark.parametrize("name", FINAL)
def test_an_image_ends_as_nobody_in_particular(name: str) -> None:
    users = [words for instruction, words in lineage(name) if instruction == "USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]), "a number: Kubernetes cannot tell that a name is not root"
    assert not any("pip" in words or "gcc" in words for instruction, words in lineage(name) if instruction == "RUN")


@pytest.mark.slow
def test_all_that_is_downloaded_is_hashed() -> None:
    lines = [line for name, words in instructions() if name == "RUN" for line in re.split("&&|;", words)]
    installs = [line for line in lines if re.search(r"\bpip\b.*\binstall\b", line)]
    assert installs
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)

"""Every option that a shipped template passes to another project's server is one that the server's own parser takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.templates import Filled
from agents.templates.filling import Builtin, fill
from agents.templates.form import ChoiceArg, IntegerArg, NumberArg
from agents.templates.reading import Template, read
from tests.agents.templates.test_shipped import GIVEN

RECORDED = Path(__file__).parent / "options"
PROGRAMS = {"vllm": ("vllm", "serve"), "sglang": ("python3", "-m", "sglang.launch_server"), "triton": ("tritonserver",)}
TYPES = {"integer": r"-?\d+", "number": r"-?\d+(\.\d+)?", "boolean": "true|false", "value": ".+"}


def recorded(server: str) -> tuple[str, dict[str, str]]:
    """Returns the version, and what each option takes, by all of its names."""
    (file,) = RECORDED.glob(f"{server}-*.txt")
    first, *lines = file.read_text().splitlines()
    head = re.fullmatch(rf"# {server} (\S+), recorded on \d{{4}}-\d\d-\d\d", first)
    assert head and file.stem == f"{server}-{head[1]}"
    options: dict[str, str] = {}
    for line in lines:
        names, _, takes = line.partition(" ")
        options |= dict.fromkeys(names.split("|"), takes)
    return head[1], options


def faults(argv: tuple[str, ...], program: tuple[str, ...], options: dict[str, str]) -> Iterator[str]:
    """Yields what the server's parser would refuse. An option and its value are one word, or two."""
    assert argv[: len(program)] == program
    words = list(argv[len(program) :])
    positional = [name for name in options if not name.startswith("-")]
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            if not positional:
                yield f"{word} belongs to no option"
            positional = positional[1:]
            continue
        name, given, value = word.partition("=")
        takes = options.get(name)
        if takes is None:
            yield f"{name} is not an option"
        elif not takes:
            if given:
                yield f"{name} takes no value"
        elif not given and (not words or words[0].startswith("--")):
            yield f"{name} lacks its value"
        else:
            value = value if given else words.pop(0)
            if not re.fullmatch(_pattern(takes), value):
                yield f"{name} {value} is not {takes}"


def _pattern(takes: str) -> str:
    kind = takes.removesuffix("...")
    if kind.startswith("{"):
        return "|".join(map(re.escape, kind.strip("{}").split(", ")))
    return TYPES[kind]


def tried(template: Template, given: dict[str, object]) -> Iterator[Filled]:
    """Yields the template filled with its defaults, and with each end and each choice of every argument."""
    args: list[dict[str, object]] = [{}]
    for name, arg in template.form.args.items():
        if isinstance(arg, ChoiceArg):
            args += [{name: choice} for choice in arg.of]
        elif isinstance(arg, IntegerArg | NumberArg):
            args += [{name: arg.min}, {name: arg.max}]
    for some in args:
        made: Any = fill(
            template, given | some, Builtin("c1", "GPU-1,GPU-2", 8000, 8002, "0.0.0.0", 4, gpu_count=2, key="k")
        )
        assert isinstance(made, Filled), made
        yield made


@pytest.mark.parametrize("name", [*PROGRAMS, "vllm-lora"])
def test_a_server_takes_every_option_of_its_template(name: str, tmp_path: Path) -> None:
    (tmp_path / "llama").mkdir()
    server = name.partition("-")[0]
    _, options = recorded(server)
    for made in tried(read(models=tmp_path)[name], GIVEN[name]):
        assert list(faults(made.argv, PROGRAMS[server], options)) == []


@pytest.mark.parametrize("name", ["vllm", "vllm-lora", "sglang"])
def test_a_template_names_the_image_of_the_recorded_version(name: str) -> None:
    assert read()[name].form.image.rpartition(":")[2] == f"v{recorded(name.partition('-')[0])[0]}"


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("--max-num-seq=4", "--max-num-seq is not an option"),
        ("--dtype=int8", "--dtype int8 is not {"),
        ("--dtype", "--dtype lacks its value"),
        ("--port=http", "--port http is not integer"),
        ("--enable-log-requests=yes", "--enable-log-requests takes no value"),
        ("stray", "stray belongs to no option"),
    ],
)
def test_a_wrong_option_is_seen(word: str, says: str) -> None:
    found = list(faults(("vllm", "serve", "model", word), PROGRAMS["vllm"], recorded("vllm")[1]))
    assert len(found) == 1
    assert found[0].startswith(says)

"""What is typed in the documentation: fenced blocks, and the commands of gpuwright in them."""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cli.main import split
from cli.verb_table import BY_NAME, load
from scripts.house.tree import ROOT

DOCS = ROOT / "docs"
# A block is run unchanged (sh), shown (console), or is no command at all.
SHELL = {"sh", "console"}
DATA = {"text", "json", "yaml", "python", "sql", "ini", "promql", "mermaid", "html"}
FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
# Not the namespace, role or database of that name, and not what a program says of itself.
CALL = re.compile(r"(?:^|(?<=[\s(;&|]))(?<!-n )(?<!-g )(?<!namespace )(?<!ROLE )(?<!OWNER )gpuwright ([a-z](?!s at).*)")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: where it stands, what it is, what it says."""

    page: Path
    line: int
    kind: str
    text: str


def read_blocks(page: Path) -> Iterator[Block]:
    whole = page.read_text()
    for found in FENCE.finditer(whole):
        indent = found["indent"]
        text = "".join(line.removeprefix(indent) for line in found["text"].splitlines(keepends=True))
        yield Block(page, whole.count("\n", 0, found.start()) + 1, found["kind"].strip(), text)


def find_indented_commands(page: Path) -> str:
    """Returns lines that are indented as code is and begin with a command of gpuwright: shown, not run."""
    lines = re.findall(r"^    (?:\$ )?(gpuwright [^\n\[]*)$", page.read_text(), re.MULTILINE)
    return "\n".join(lines)


def find_commands(text: str) -> Iterator[list[str]]:
    """Yields the words of each call of gpuwright in a block of shell, as far as its own arguments go."""
    for line in text.replace("\\\n", " ").splitlines():
        for found in CALL.finditer(line):
            lexer = shlex.shlex(found[1], posix=True, punctuation_chars="<>&|;()")
            lexer.whitespace_split = True
            words: list[str] = []
            with contextlib.suppress(ValueError):  # a quote that ends in another line
                for word in lexer:
                    if set(word) <= set("<>&|;()"):
                        break
                    words.append(word)
            if words:
                yield words


def find_fault(words: list[str]) -> str:
    """Returns why the command line would not take these words; empty where it would."""
    _, words = split(words)
    if not words or words[0] in ("help", "VERB"):
        return ""
    verb = BY_NAME.get(words[0])
    if verb is None:
        return f"there is no verb {words[0]!r}"
    parser = parser_of(verb.name)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            parser.parse_args(words[1:])
    except SystemExit as ended:
        return said.getvalue().strip().splitlines()[-1] if ended.code else ""
    return ""


def find_unknown_word(words: list[str]) -> str:
    """Says which of these words no parser knows; empty where all are known, though arguments may be missing."""
    _, words = split(words)
    if not words or words[0] in ("help", "VERB"):
        return ""
    if words[0] not in BY_NAME:
        return f"there is no verb {words[0]!r}"
    parser = parser_of(words[0])
    for word in (word.strip("[]") for word in words[1:]):
        if word.startswith("--"):
            if word.split("=")[0] not in flags_of(parser):
                return f"{parser.prog} takes no {word}"
        elif below := actions_of(parser):
            if word.isupper():  # stands for any of them
                return ""
            if word not in below:
                return f"{parser.prog} has no {word!r}"
            parser = below[word]
    return ""


@functools.cache
def parser_of(verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"gpuwright {verb}")
    load(BY_NAME[verb]).add_arguments(parser)
    return parser


def actions_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next((action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)), {})


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}

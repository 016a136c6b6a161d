"""What the pages say is what the code has: commands, routes, paths, modules, settings, links, measured figures."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from app.settings import PREFIX, UNPREFIXED, Settings
from cli.verb_table import BY_NAME
from scripts.house.plain import STILTED
from scripts.house.tree import PRODUCT, ROOT, Fault, Tree, line_of
from scripts.house.typed import (
    Block,
    actions_of,
    find_commands,
    find_fault,
    find_indented_commands,
    find_unknown_word,
    flags_of,
    parser_of,
    read_blocks,
)  # fmt: skip

OURSELVES = "scripts/house/pages.py"  # names variables and flags that only pages have
TOPS = ("agents", "app", "benchmarks", "cli", "clusters", "deploy", "docs", "examples", "migrations", "openapi",
        "requirements", "scripts", "simulation", "solvers", "tests",
        # A tenant of examples is called `lab`, too: its rooms are named one by one.
        *(f"lab/{room.name}" for room in sorted((ROOT / "lab").iterdir()) if room.is_dir()))  # fmt: skip
README_BYTES = 7_000
# Flags that pages name and that belong to programs of others.
FOREIGN = {"--enable-feature", "--gpu-reset", "--profile", "--strict"}

CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
PATH = re.compile(rf"(?<![\w./$:-])(?:{'|'.join(TOPS)})/[\w./*-]*\w[\w*/]*")
MADE = re.compile(r"deploy/gpuwright-api$")  # a name in Kubernetes
FILE = re.compile(r"^[a-z_][a-z0-9_]*(?:/[a-z0-9_]+)*\.py$")
DOTTED = re.compile(rf"(?<![\w./])(?:{'|'.join(PRODUCT)}|tests)(?:\.(?!(?:md|yaml|json|py)\b)[A-Za-z_]\w*)+(?![\w/])")
MODULE = re.compile(r"python -m ([\w.]+)([^\n`|#;&]*)")
FLAG = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]*)")
ROUTE = re.compile(r"(?:\b(GET|PUT|POST|PATCH|DELETE)\s+)?(/api/v1(?:/[\w{}.:-]+)+)")
SETTING = re.compile(r"\b(?:GPUWRIGHT|DATABASE|OTEL)_[A-Z_]*[A-Z]\b")
LINK = re.compile(r"(?<!\!)\[[^\]\n]*\]\(([^)\s]+)\)|\!\[[^\]]*\]\(([^)\s]+)\)")
MEASURED = re.compile(r"^#+ .*\b(?:measured|figures|how fast|what it costs)\b", re.IGNORECASE | re.MULTILINE)
MEASURES = re.compile(r"python -m (?:tests.proofs|lab)|gpuwright bench|bench [a-z]+|tests/[\w/.]+|scripts/\w+\.py|`ps`")


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """A page as it is written."""

    path: Path
    text: str
    tree: Tree

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT)) if self.path.is_relative_to(ROOT) else self.path.name

    def fault(self, at: int, text: str) -> Fault:
        return Fault(self.name, line_of(self.text, at), text)

    def code(self) -> Iterator[tuple[int, str]]:
        """Code within lines, with its place."""
        return ((found.start(), found[1]) for found in CODE.finditer(self.text))


def pages(root: Path = ROOT) -> Iterator[Path]:
    yield from sorted((root / "docs").rglob("*.md"))
    yield from (root / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))


def a_page_says_nothing_that_the_code_does_not_have(tree: Tree) -> Iterator[Fault]:
    for path in pages(tree.root):
        yield from find_faults(Page(path, path.read_text(), tree))


def find_faults(page: Page) -> Iterator[Fault]:
    """Yields all that a page says and the code does not have."""
    for check in CHECKS:
        yield from check(page)


# Commands


def find_wrong_commands(page: Page) -> Iterator[Fault]:
    """Commands of gpuwright in blocks that its parser refuses."""
    shown = [block for block in read_blocks(page.path) if block.kind in ("sh", "console")]
    for block in (*shown, Block(page.path, 1, "", find_indented_commands(page.path))):
        for words in find_commands(block.text):
            if problem := find_fault(words):
                yield Fault(page.name, block.line, f"gpuwright {' '.join(words)}: {problem}")


def find_wrong_inline(page: Page) -> Iterator[Fault]:
    """Verbs, actions and flags in running text that no parser knows."""
    for at, code in page.code():
        if code.startswith("gpuwright "):
            for words in find_commands(code):
                if problem := find_unknown_word(words):
                    yield page.fault(at, f"`{code}`: {problem}")
        elif code.startswith("--"):
            unknown = set(FLAG.findall(code)) - list_flags() - FOREIGN
            yield from (page.fault(at, f"`{code}`: no verb takes {flag}") for flag in sorted(unknown))


@functools.cache
def list_flags() -> set[str]:
    """Returns the flags of every verb and action, and those that a program of ours reads or a template passes."""
    waiting = [parser_of(verb) for verb in BY_NAME]
    flags: set[str] = set()
    while waiting:
        parser = waiting.pop()
        flags |= flags_of(parser)
        waiting += actions_of(parser).values()
    passed = [path.read_text() for path in (ROOT / "agents" / "templates").glob("*.yaml")]
    flags |= set(FLAG.findall("\n".join(passed)))
    return flags | set(re.findall(r"[\"'](--[a-z][a-z0-9-]*)[\"']", read_all("*.py")))


# Routes, paths, modules, names, settings


def find_wrong_routes(page: Page) -> Iterator[Fault]:
    """Routes that the contract does not have, or not with that method."""
    for found in ROUTE.finditer(page.text):
        method, route = found[1], found[2].rstrip(".:")
        matching = [path for path in read_contract() if is_route(route, path)]
        if not matching:
            yield page.fault(found.start(), f"{route}: no such route in openapi/openapi.json")
        elif method and not any(method.lower() in read_contract()[path] for path in matching):
            yield page.fault(found.start(), f"{method} {route}: the route does not take {method}")


@functools.cache
def read_contract() -> dict[str, dict[str, object]]:
    paths: dict[str, dict[str, object]] = json.loads((ROOT / "openapi" / "openapi.json").read_text())["paths"]
    return paths


def is_route(route: str, path: str) -> bool:
    have, want = route.split("/"), path.split("/")
    return len(have) == len(want) and all(b.startswith("{") or a == b for a, b in zip(have, want, strict=True))


def find_wrong_paths(page: Page) -> Iterator[Fault]:
    """Files and folders, in text or typed, that the tree does not have."""
    for found in PATH.finditer(page.text):
        wanted = re.sub(r"(?<=/)[A-Z]+(?=[./]|$)", "*", found[0].rstrip("/."))
        if not fnmatch.filter(list_files(), wanted) and not MADE.search(found[0]):
            yield page.fault(found.start(), f"{found[0]} is not in the tree")
    for at, code in page.code():
        for word in filter(FILE.match, code.split()):
            if not any(path.endswith(f"/{word}") or path == word for path in list_files()):
                yield page.fault(at, f"no file of the tree is called `{word}`")


@functools.cache
def list_files() -> frozenset[str]:
    """Returns every file that git tracks or would, and every folder above one."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    there = [file for file in files if file and (ROOT / file).exists()]
    return frozenset(there) | {str(folder) for file in there for folder in Path(file).parents}


def find_wrong_modules(page: Page) -> Iterator[Fault]:
    """`python -m MODULE --flag` where the module's source has no such flag."""
    for found in MODULE.finditer(page.text):
        module, rest = found[1].rstrip("."), found[2]
        source = page.tree.source_of(f"{module}.__main__") or page.tree.source_of(module)
        for flag in FLAG.findall(rest):
            if source and f'"{flag}"' not in source.text:
                yield page.fault(found.start(), f"python -m {module} takes no {flag}")


def find_wrong_names(page: Page) -> Iterator[Fault]:
    """Dotted names whose module, or the name within it, does not exist."""
    for found in DOTTED.finditer(page.text):
        if not page.tree.defines(found[0]):
            yield page.fault(found.start(), f"`{found[0]}` does not exist")


def find_wrong_settings(page: Page) -> Iterator[Fault]:
    """Variables of the environment that nothing reads."""
    for found in SETTING.finditer(page.text):
        if found[0] not in list_variables():
            yield page.fault(found.start(), f"nothing reads the variable {found[0]}")


@functools.cache
def list_variables() -> frozenset[str]:
    """Returns all variables that something reads: the settings, and those that code, units and Compose files name."""
    settings = (field.name.upper() for field in dataclasses.fields(Settings))
    named = SETTING.findall("\n".join(map(read_all, ("*.py", "*.service", "*.yml", "*.yaml"))))
    return frozenset(named) | {name if name.lower() in UNPREFIXED else PREFIX + name for name in settings}


@functools.cache
def read_all(pattern: str) -> str:
    """Returns the text of all files of the tree of this kind, one after the other."""
    return "\n".join(
        (ROOT / path).read_text()
        for path in sorted(list_files())
        if fnmatch.fnmatch(path, pattern) and path != OURSELVES and (ROOT / path).is_file()
    )


# Links, figures, length


def find_wrong_links(page: Page) -> Iterator[Fault]:
    """Links within the repository that lead nowhere, or to no heading there."""
    for found in LINK.finditer(page.text):
        target = found[1] or found[2]
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.path.parent / name).resolve() if name else page.path
        if not path.exists():
            yield page.fault(found.start(), f"the link {target} leads to no file")
        elif anchor and path.suffix == ".md" and anchor not in list_headings(path.read_text()):
            yield page.fault(found.start(), f"the link {target} leads to no heading")


def list_headings(text: str) -> set[str]:
    plain = (re.sub(r"[`*]", "", heading).strip().lower() for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE))
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading)) for heading in plain}


def find_unsourced_figures(page: Page) -> Iterator[Fault]:
    """Sections of measured figures that name nothing that measures them."""
    marks = [*(found.start() for found in re.finditer(r"^## ", page.text, re.MULTILINE)), len(page.text)]
    for found in MEASURED.finditer(page.text):
        end = next(mark for mark in marks if mark > found.start())
        if not MEASURES.search(page.text[found.start() : end]):
            yield page.fault(found.start(), "these figures name no command that measures them")


def find_stilted_words(page: Page) -> Iterator[Fault]:
    """Words that a colleague would not use, on pages written by hand."""
    if "Written from" not in page.text[:200]:
        yield from (page.fault(found.start(), f'"{found[0]}"') for found in STILTED.finditer(page.text))


def find_wrong_length(page: Page) -> Iterator[Fault]:
    size = len(page.text.encode())
    if page.name == "README.md" and size > README_BYTES:
        yield Fault(page.name, 1, f"{size:,} bytes; at most {README_BYTES:,}")


CHECKS = (
    find_wrong_commands, find_wrong_inline, find_wrong_routes, find_wrong_paths, find_wrong_modules, find_wrong_names,
    find_wrong_settings, find_wrong_links, find_unsourced_figures, find_stilted_words, find_wrong_length,
)  # fmt: skip
RULES = (a_page_says_nothing_that_the_code_does_not_have,)

"""The tree as the rules see it: each file is read once and parsed once, for all of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("agents", "app", "benchmarks", "cli", "clusters", "lab", "migrations", "scripts", "simulation", "solvers")
TESTS = ("tests/", "lab/tests/")


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """What breaks a rule: its place, and why it does."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Source:
    """A Python file."""

    name: str  # its path below the root
    text: str

    @property
    def is_of_tests(self) -> bool:
        return self.name.startswith(TESTS)

    @property
    def dotted(self) -> str:
        return self.name.removesuffix(".py").replace("/", ".")

    @cached_property
    def lines(self) -> int:
        return self.text.count("\n")

    @cached_property
    def module(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.module))

    def fault(self, line: int, text: str) -> Fault:
        return Fault(self.name, line, text)


class Tree:
    """All files of the repository below a root."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root

    @cached_property
    def sources(self) -> dict[str, Source]:
        """Returns every Python file of ours by its path."""
        files = sorted(path for top in (*PRODUCT, "tests") for path in (self.root / top).rglob("*.py"))
        return {name: Source(name, path.read_text()) for path in files for name in [self.name_of(path)]}

    @property
    def product(self) -> Iterator[Source]:
        return (source for source in self.sources.values() if not source.is_of_tests)

    def source_of(self, module: str) -> Source | None:
        """Returns the file of a module or a package."""
        path = module.replace(".", "/")
        return self.sources.get(f"{path}.py") or self.sources.get(f"{path}/__init__.py")

    def defines(self, dotted: str) -> bool:
        """Returns whether the name of a module, or of something in it, stands for something. Nothing is imported."""
        words = dotted.split(".")
        for size in range(len(words), 0, -1):
            if source := self.source_of(".".join(words[:size])):
                return self._holds(source, words[size:])
        return False

    def _holds(self, source: Source, words: list[str]) -> bool:
        body: list[ast.stmt] = source.module.body
        while words:
            for node in body:
                match node:
                    case ast.FunctionDef(name=name) if name == words[0]:
                        return len(words) == 1
                    case ast.ClassDef(name=name) if name == words[0]:
                        body, words = node.body, words[1:]
                        break
                    case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if (
                        name == words[0]
                    ):
                        return len(words) == 1
                    case ast.ImportFrom(module=str(other)) if words[0] in {alias.name for alias in node.names}:
                        return self.defines(".".join([other, *words]))
            else:
                return False
        return True

    def text(self, name: str) -> str:
        return (self.root / name).read_text()

    def files(self, pattern: str) -> list[Path]:
        return sorted(self.root.glob(pattern))

    def name_of(self, path: Path) -> str:
        return str(path.relative_to(self.root))


def line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1

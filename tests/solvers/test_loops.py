"""The declaration of every compiled loop is true."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("app", "benchmarks", "cli", "lab", "simulation", "solvers")


@cache
def texts() -> dict[str, str]:
    files = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text() for path in files}


@cache
def parsed(module: str) -> ast.Module:
    return ast.parse(texts()[module])


def door(node: ast.AST) -> ast.Call | None:
    """Returns the call of `njit` that decorates this function."""
    for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "njit":
            return decorator
    return None


@cache
def loops() -> dict[tuple[str, str], ast.Call]:
    """Reads only the modules that name the compiler: every worker of a test run does this when it collects."""
    named = [module for module, text in texts().items() if "njit" in text]
    found = ((module, node, door(node)) for module in named for node in parsed(module).body)
    return {(module, node.name): call for module, node, call in found if call and isinstance(node, ast.FunctionDef)}


def read_outside_loops(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if door(node) is None:
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, ast.Attribute):
                yield ast.unparse(node)
            yield from read_outside_loops(node)


@cache
def called_from_python() -> set[tuple[str, str]]:
    every = loops()
    called: set[tuple[str, str]] = set()
    for module, tree in ((module, parsed(module)) for module in texts()):
        names = {name: (module, name) for owner, name in every if owner == module}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    known = alias.asname or alias.name
                    names[known] = (node.module, alias.name)
                    names |= {
                        f"{known}.{name}": (owner, name)
                        for owner, name in every
                        if owner == f"{node.module}.{alias.name}"
                    }
        called |= {names[name] for name in read_outside_loops(tree) if names.get(name) in every}
    return called


def says(call: ast.Call, what: str) -> bool:
    return any(keyword.arg == what for keyword in call.keywords)


@pytest.mark.parametrize("loop", [pytest.param(loop, id=".".join(loop)) for loop in loops()])
def test_a_loop_is_inner_when_python_never_calls_it(loop: tuple[str, str]) -> None:
    assert says(loops()[loop], "inner") == (loop not in called_from_python())

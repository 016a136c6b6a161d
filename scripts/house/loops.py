"""What a compiled loop declares of itself is true: `inner` where no Python calls it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from scripts.house.tree import Fault, Source, Tree

FOLDERS = ("app/", "benchmarks/", "cli/", "clusters/", "lab/", "simulation/", "solvers/")


@dataclass(frozen=True, slots=True)
class DeclaredLoop:
    """A function that `njit` decorates."""

    source: Source
    line: int
    is_inner: bool


Loops = dict[tuple[str, str], DeclaredLoop]  # by module and name


def a_loop_is_inner_when_python_never_calls_it(tree: Tree) -> Iterator[Fault]:
    sources = [source for source in tree.product if source.name.startswith(FOLDERS)]
    every = find_loops(sources)
    called = {loop for source in sources for loop in find_called_from_python(source, every)}
    for (module, name), loop in every.items():
        if loop.is_inner and (module, name) in called:
            yield loop.source.fault(loop.line, f"{name} is called from Python, so it is not inner")
        elif not loop.is_inner and (module, name) not in called:
            yield loop.source.fault(loop.line, f"{name} is never called from Python: say inner=True")


def find_loops(sources: list[Source]) -> Loops:
    return {
        (source.dotted, node.name): DeclaredLoop(
            source, node.lineno, any(word.arg == "inner" for word in call.keywords)
        )
        for source in sources
        if "njit" in source.text
        for node in source.module.body
        if isinstance(node, ast.FunctionDef) and (call := _find_njit(node))
    }


def _find_njit(node: ast.AST) -> ast.Call | None:
    """Returns the call of `njit` that decorates this function."""
    for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "njit":
            return decorator
    return None


def find_called_from_python(source: Source, every: Loops) -> set[tuple[str, str]]:
    names = {name: (module, name) for module, name in every if module == source.dotted}
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                known = alias.asname or alias.name
                names[known] = (node.module, alias.name)
                inside = f"{node.module}.{alias.name}"
                names |= {f"{known}.{name}": (module, name) for module, name in every if module == inside}
    if not any(place in every for place in names.values()):
        return set()
    return {names[name] for name in _read_outside_loops(source.module) if names.get(name) in every}


def _read_outside_loops(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if _find_njit(node) is None:
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, ast.Attribute):
                yield ast.unparse(node)
            yield from _read_outside_loops(node)


RULES = (a_loop_is_inner_when_python_never_calls_it,)

"""Deliberate bugs: each changes one comparison, operator, constant, condition, statement or returned value of a module.

The functions of the module get the changed code, wherever they were imported to. Processes that are started by this one
import the changed code.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import CodeType, FunctionType, ModuleType

# Python runs this as it starts, where the folder that holds it is in PYTHONPATH.
SITE = """\
import sys
from importlib.machinery import PathFinder, SourceFileLoader

class Changed(SourceFileLoader):
    def get_code(self, name):
        return compile({text!r}, self.path, "exec")

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        found = PathFinder.find_spec(name, path) if name == {module!r} else None
        if found:
            found.loader = Changed(name, found.origin)
        return found

sys.meta_path.insert(0, Finder)
"""
SWAPS: Mapping[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CLOCKS = ("monotonic", "now")
Change = tuple[str, Callable[[ast.AST], None]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change at one place of a module: which of the changes that are possible at this node of its syntax tree."""

    module: str
    line: int
    change: str
    node: int
    number: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.change}"

    def tree(self) -> ast.Module:
        """Returns the changed module."""
        tree = _read(self.module)
        node = list(ast.walk(tree))[self.node]
        list(_changes(node))[self.number][1](node)
        return ast.fix_missing_locations(tree)


def find_mutants(name: str) -> list[Mutant]:
    """Returns every mutant of a module's functions that anybody could notice, in the order of the text."""
    tree = _read(name)
    bodies = [part for each in ast.walk(tree) if isinstance(each, FUNCTIONS) for part in each.body]
    inside = {id(inner) for part in bodies for inner in ast.walk(part)} - {id(node) for node in _list_unseen(tree)}
    found = [
        Mutant(name, _find_line(node), change, index, number)
        for index, node in enumerate(ast.walk(tree))
        if id(node) in inside
        for number, (change, _) in enumerate(_changes(node))
    ]
    return sorted(found, key=lambda mutant: (mutant.line, mutant.change, mutant.node, mutant.number))


def _list_unseen(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields what changes nothing but types, the text of messages, the code's own assertions, or the very moment."""
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(annotation=ast.expr() as unseen) | ast.arg(annotation=ast.expr() as unseen):
                yield from ast.walk(unseen)
            case ast.Call(func=ast.Attribute(value=ast.Name("log"))) | ast.keyword(arg="strict"):
                yield from ast.walk(node)
            case ast.FormattedValue():  # how much of it is quoted
                yield from (part for each in ast.walk(node) if isinstance(each, ast.Slice) for part in ast.walk(each))
            case ast.Compare() if any(
                isinstance(each, ast.Attribute) and each.attr in CLOCKS for each in ast.walk(node)
            ):
                yield node


def _is_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in CLOCKS


def _find_line(node: ast.AST) -> int:
    return _find_line(node.target) if isinstance(node, ast.comprehension) else getattr(node, "lineno", 0)


def _read(name: str) -> ast.Module:
    path = importlib.import_module(name).__file__
    assert path is not None
    return ast.parse(Path(path).read_text())


def _changes(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                if type(op) in SWAPS:
                    yield f"{type(op).__name__} to {SWAPS[type(op)].__name__}", lambda n, at=at: _swap(n.ops, at)  # type: ignore
        case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in SWAPS:
            yield f"{type(op).__name__} to {SWAPS[type(op)].__name__}", lambda n: setattr(n, "op", SWAPS[type(n.op)]())  # type: ignore
        case ast.UnaryOp(op=ast.Not()):
            yield "not left out", lambda n: setattr(n, "operand", ast.UnaryOp(ast.Not(), n.operand))  # type: ignore
        case ast.Constant(value=bool() as value):
            yield f"{value} to {not value}", lambda n: setattr(n, "value", not n.value)  # type: ignore
        case ast.Constant(value=int() as value):
            yield f"{value} to {value + 1}", lambda n: setattr(n, "value", n.value + 1)  # type: ignore
        case ast.If() | ast.IfExp():
            for value in (True, False):
                yield f"condition {value}", lambda n, value=value: setattr(n, "test", ast.Constant(value))  # type: ignore
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "returns None", lambda n: setattr(n, "value", ast.Constant(None))
        case ast.comprehension(ifs=[_, *_]):
            yield "filter left out", lambda n: setattr(n, "ifs", [])
    for place in ("body", "orelse", "finalbody"):
        for at, statement in enumerate(getattr(node, place, None) or () if isinstance(node, ast.stmt) else ()):
            if _is_left_out(statement):
                kind = type(statement).__name__.lower()
                yield f"{kind} of line {statement.lineno} left out", lambda n, p=place, at=at: _leave_out(n, p, at)  # type: ignore


def _is_left_out(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Constant)  # a docstring
    return isinstance(statement, ast.Raise | ast.AugAssign | ast.Continue | ast.Delete)


def _swap(ops: list[ast.AST], at: int) -> None:
    ops[at] = SWAPS[type(ops[at])]()


def _leave_out(node: ast.AST, place: str, at: int) -> None:
    getattr(node, place)[at] = ast.copy_location(ast.Pass(), getattr(node, place)[at])


def apply(mutant: Mutant) -> None:
    """Gives the functions of the module their changed code. Who has imported them has the same functions."""
    module = sys.modules[mutant.module]
    codes = dict(_codes(compile(mutant.tree(), str(module.__file__), "exec")))
    for function in _functions(module):
        code = codes.get(function.__qualname__)
        # A change that leaves out the only super() fits no function that stands: processes that tests start have it.
        if code is not None and code.co_freevars == function.__code__.co_freevars:
            function.__code__ = code


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner.co_qualname, inner
            yield from _codes(inner)


def _functions(holder: ModuleType | type) -> Iterator[FunctionType]:
    for value in list(vars(holder).values()):
        if isinstance(value, type) and isinstance(holder, ModuleType):
            if value.__module__ == holder.__name__:
                yield from _functions(value)
            continue
        plain = getattr(value, "fget", None) or getattr(value, "__func__", value)
        plain = getattr(plain, "__wrapped__", plain)  # of a context manager or a cache
        name = holder.__name__ if isinstance(holder, ModuleType) else holder.__module__
        if isinstance(plain, FunctionType) and plain.__module__ == name:
            yield plain


def change_started(mutant: Mutant, folder: Path) -> None:
    """Makes every Python that is started from now on import the changed code, by a file in this folder."""
    text = ast.unparse(mutant.tree())
    (folder / "sitecustomize.py").write_text(SITE.format(text=text, module=mutant.module))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


def draw(modules: Sequence[str], sample: int, seed: int) -> list[Mutant]:
    """Draws so many mutants of all modules together; all of them, if there are fewer."""
    everything = [mutant for module in modules for mutant in find_mutants(module)]
    return sorted(Random(seed).sample(everything, min(sample, len(everything))), key=str)

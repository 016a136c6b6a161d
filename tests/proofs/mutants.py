"""Deliberate bugs in a module, a seeded sample of them: the tests nearby find nearly each.

python -m tests.proofs.mutants MODULE[,MODULE...] [--sample N] [--seed N] TESTS...

Each mutant changes one comparison, operator, constant, condition, statement or returned value. A process is forked for
it, in which the functions of the module get the changed code, wherever they were imported to; then the tests run there
until the first fails. Processes that the tests start import the changed code. What survives is printed with its line.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import CodeType, FunctionType, ModuleType

import pytest

PATIENCE_SECONDS = 120.0  # a mutant that hangs is found as well
QUIET_OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly")
PATIENCE_TIMES = 5.0  # of what the tests take without any
NO_RUN = 70  # exit code of a process that could not run the tests, which says nothing of the mutant
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
    """Returns every mutant of a module's functions, in the order of the text."""
    tree = _read(name)
    bodies = [part for each in ast.walk(tree) if isinstance(each, FUNCTIONS) for part in each.body]
    inside = {id(inner) for part in bodies for inner in ast.walk(part)}
    found = [
        Mutant(name, getattr(node, "lineno", 0), change, index, number)
        for index, node in enumerate(ast.walk(tree))
        if id(node) in inside
        for number, (change, _) in enumerate(_changes(node))
    ]
    return sorted(found, key=lambda mutant: (mutant.line, mutant.change, mutant.node, mutant.number))


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


def survives(mutant: Mutant | None, tests: Sequence[str], seconds: float = PATIENCE_SECONDS) -> bool:
    """Returns whether all tests pass with the mutant, in a process of its own."""
    with TemporaryDirectory(prefix="mutant-") as folder:
        return _survives(mutant, tests, seconds, Path(folder))


def find_patience_seconds(tests: Sequence[str]) -> float:
    """Imports what the tests do, for all mutants at once, and runs them without any; returns how long one may take."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):  # noqa: PTH123
        pytest.main(["--collect-only", *QUIET_OPTIONS, *tests])
    began = time.monotonic()
    assert survives(None, tests, float("inf")), "the tests fail without any mutant"
    return max(PATIENCE_SECONDS, PATIENCE_TIMES * (time.monotonic() - began))


def sort_tests(mutant: Mutant | None, tests: Sequence[str]) -> list[str]:
    """Returns the tests, files in place of folders, with those first that name the module."""
    files = [file for test in tests for file in (_list_files(Path(test)) if Path(test).is_dir() else [test])]
    return sorted(files, key=lambda test: mutant is not None and mutant.module not in _read_test(test))


def _list_files(folder: Path) -> list[str]:
    files = sorted(map(str, folder.rglob("test_*.py")))
    assert files, f"{folder} has no tests"  # without a word pytest would run all tests of the repository
    return files


def _read_test(test: str) -> str:
    return Path(test.partition("::")[0]).read_text()


def _survives(mutant: Mutant | None, tests: Sequence[str], seconds: float, folder: Path) -> bool:
    child = os.fork()
    if child == 0:
        code = NO_RUN
        try:
            os.setsid()
            code = _run_tests(mutant, tests, folder)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    handle = os.pidfd_open(child)
    try:
        is_over = bool(select.select([handle], [], [], None if seconds == float("inf") else seconds)[0])
        with suppress(ProcessLookupError):  # processes that a test has left, too
            os.killpg(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(handle)
    if code == NO_RUN:
        raise RuntimeError(f"the tests could not be run with {mutant or 'no mutant'}: {' '.join(tests)}")
    return code == 0 and is_over


def _run_tests(mutant: Mutant | None, tests: Sequence[str], folder: Path) -> int:
    if mutant is not None:
        apply(mutant)
        site = SITE.format(text=ast.unparse(mutant.tree()), module=mutant.module)
        (folder / "sitecustomize.py").write_text(site)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):  # noqa: PTH123
        code = pytest.main(["-x", *QUIET_OPTIONS, *sort_tests(mutant, tests)])
    if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
        return NO_RUN
    return int(code != pytest.ExitCode.OK)


def draw(modules: Sequence[str], sample: int, seed: int) -> list[Mutant]:
    """Draws so many mutants of all modules together; all of them, if there are fewer."""
    everything = [mutant for module in modules for mutant in find_mutants(module)]
    return sorted(Random(seed).sample(everything, min(sample, len(everything))), key=str)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", type=lambda words: words.split(","))
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    mutants = draw(args.modules, args.sample, args.seed)
    seconds = find_patience_seconds(args.tests)
    survivors = 0
    for mutant in mutants:
        if survives(mutant, args.tests, seconds):
            survivors += 1
            print(f"survived: {mutant}", flush=True)
    print(f"{len(mutants) - survivors} of {len(mutants)} mutants found")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())

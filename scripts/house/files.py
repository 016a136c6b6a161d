"""How files look: they say what they are for, stay short, and name things once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePath

from scripts.house.tree import Fault, Source, Tree

MOST_LINES = 400
MOST_TEST_LINES = 450
MOST_FUNCTION_LINES = 60
USUAL_LINES = 100  # half of the product's files have no more
# Compiled loops that share what the compiler inlines, and one list of alerts and panels.
LONG_FILES = {
    "scripts/monitoring.py",
    "solvers/planning/exact/kernels.py",
    "solvers/planning/jobs/kernels.py",
    "solvers/planning/search/pattern.py",
}
VAGUE = {"utils", "util", "helper", "helpers", "manager", "managers", "common", "misc"}
PACKAGES = ("agents/", "app/", "benchmarks/", "cli/", "clusters/", "lab/", "simulation/", "solvers/")
MAKERS_OF_SQL = {("app.store.database.database", "statement"), ("sqlalchemy", "text")}


def a_module_says_what_it_is_for_and_stays_small(tree: Tree) -> Iterator[Fault]:
    for source in tree.sources.values():
        most = MOST_TEST_LINES if source.is_of_tests or source.name in LONG_FILES else MOST_LINES
        if source.lines > most:
            yield source.fault(most + 1, f"{source.lines} lines; a file that long is two files")
        if source.text and not ast.get_docstring(source.module):
            yield source.fault(1, "no docstring")
        if (stem := PurePath(source.name).stem) in VAGUE:
            yield source.fault(1, f"{stem} says nothing; name what the module is about")


def no_two_classes_of_the_product_have_one_name(tree: Tree) -> Iterator[Fault]:
    first: dict[str, str] = {}
    for source in tree.product:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                place = first.setdefault(node.name, f"{source.name}:{node.lineno}")
                if place != f"{source.name}:{node.lineno}":
                    yield source.fault(node.lineno, f"class {node.name} has the name of the one at {place}")


def functions_are_short_but_for_compiled_loops(tree: Tree) -> Iterator[Fault]:
    for source in tree.product:
        for node in source.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_compiled(node):
                lines = (node.end_lineno or 0) - node.lineno
                if lines >= MOST_FUNCTION_LINES:
                    yield source.fault(node.lineno, f"{node.name} has {lines} lines; split it by topic")


def _is_compiled(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("njit" in ast.unparse(decorator) for decorator in node.decorator_list)


def half_of_the_files_are_short(tree: Tree) -> Iterator[Fault]:
    sizes = sorted((source.lines, source.name) for source in tree.product)
    if sizes and sizes[len(sizes) // 2][0] > USUAL_LINES:
        lines, name = sizes[len(sizes) // 2]
        yield Fault(name, 1, f"half of the product's files have {lines} lines, as this one has, or more")


def every_package_has_a_file_that_makes_it_one(tree: Tree) -> Iterator[Fault]:
    folders = {str(PurePath(name).parent) for name in tree.sources if name.startswith(PACKAGES)}
    for folder in sorted(folders):
        if f"{folder}/__init__.py" not in tree.sources:
            yield Fault(f"{folder}/__init__.py", 1, "is missing, so its folder is no package")


def sql_stands_in_the_store_alone(tree: Tree) -> Iterator[Fault]:
    for source in tree.product:
        if source.name.startswith(("app/", "agents/", "cli/")) and not source.name.startswith("app/store/"):
            yield from _find_makers_of_sql(source)


def _find_makers_of_sql(source: Source) -> Iterator[Fault]:
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and MAKERS_OF_SQL & {(node.module, alias.name) for alias in node.names}:
            yield source.fault(node.lineno, "SQL stands in app/store/ alone")


RULES = (
    a_module_says_what_it_is_for_and_stays_small,
    no_two_classes_of_the_product_have_one_name,
    functions_are_short_but_for_compiled_loops,
    half_of_the_files_are_short,
    every_package_has_a_file_that_makes_it_one,
    sql_stands_in_the_store_alone,
)

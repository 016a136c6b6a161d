"""docs/mathematics.md names what exists: modules and functions of the solvers, and exactly the rules of the judge."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from scripts.house.tree import Fault, Source, Tree, line_of

PAGE = "docs/mathematics.md"
JUDGE = "solvers/planning/judge"
LISTS = {
    "shapes": ("RULES", "LOAD_RULES"),
    "gpus": ("RULES", "NODE_RULES"),
    "services": ("RULES",),
    "tenants": ("RULES",),
    "jobs": ("LINE_RULES", "RULES"),
}
JUDGED_OVER_ALL = {"slo_holds", "power_budget_holds", "unserved_exists", "unplaced_exists"}


def every_name_stands_for_something(tree: Tree) -> Iterator[Fault]:
    text = tree.text(PAGE)
    for found in re.finditer(r"\bsolvers(?:\.\w+)+", text):
        words = found[0].split(".")
        if not _exists(tree, words):
            yield Fault(PAGE, line_of(text, found.start()), f"{found[0]} does not exist")


def _exists(tree: Tree, words: list[str]) -> bool:
    for size in range(len(words), 0, -1):
        if source := tree.source_of(".".join(words[:size])):
            return _is_in(tree, source, words[size:])
    return False


def _is_in(tree: Tree, source: Source, words: list[str]) -> bool:
    """Read, not imported: some of the solvers' libraries take seconds to load."""
    body: list[ast.stmt] = source.module.body
    while words:
        for one in body:
            match one:
                case ast.FunctionDef(name=found) if found == words[0]:
                    return len(words) == 1
                case ast.ClassDef(name=found) if found == words[0]:
                    body, words = one.body, words[1:]
                    break
                case ast.Assign(targets=[ast.Name(id=found)]) | ast.AnnAssign(target=ast.Name(id=found)) if (
                    found == words[0]
                ):
                    return len(words) == 1
                case ast.ImportFrom(module=str(other)) if words[0] in {alias.name for alias in one.names}:
                    if inner := tree.source_of(f"{other}.{words[0]}"):
                        return _is_in(tree, inner, words[1:])
                    outer = tree.source_of(other)
                    return outer is not None and _is_in(tree, outer, words)
        else:
            return False
    return True


def the_rules_that_are_named_are_the_judges(tree: Tree) -> Iterator[Fault]:
    text = tree.text(PAGE)
    rules = judged(tree) | JUDGED_OVER_ALL
    yield from (Fault(PAGE, 1, f"lacks the judge's rule `{rule}`") for rule in sorted(rules) if f"`{rule}`" not in text)
    start = text.index("## The rules")
    section = text[start:].split("\n## ")[0]
    named = {found[1]: found.start() for found in re.finditer(r"`([a-z]+(?:_[a-z]+)+)`", section)}
    for rule in sorted(named.keys() - rules):
        yield Fault(PAGE, line_of(text, start + named[rule]), f"the judge has no rule `{rule}`")
    for rule in sorted(rules - named.keys()):
        yield Fault(PAGE, line_of(text, start), f"this section lacks the judge's rule `{rule}`")


def judged(tree: Tree) -> set[str]:
    """Returns the rules that the judge's modules list."""
    return {
        rule.id
        for module, lists in LISTS.items()
        for node in tree.sources[f"{JUDGE}/{module}.py"].module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in lists and isinstance(node.value, ast.Tuple)
        for rule in node.value.elts
        if isinstance(rule, ast.Name)
    }


RULES = (every_name_stands_for_something, the_rules_that_are_named_are_the_judges)

"""docs/mathematics.md names exactly the rules of the judge."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from scripts.house.tree import Fault, Tree, line_of

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


def the_rules_that_are_named_are_the_judges(tree: Tree) -> Iterator[Fault]:
    text = tree.text(PAGE)
    rules = list_judged_rules(tree) | JUDGED_OVER_ALL
    yield from (Fault(PAGE, 1, f"lacks the judge's rule `{rule}`") for rule in sorted(rules) if f"`{rule}`" not in text)
    start = text.index("## The rules")
    section = text[start:].split("\n## ")[0]
    named = {found[1]: found.start() for found in re.finditer(r"`([a-z]+(?:_[a-z]+)+)`", section)}
    for rule in sorted(named.keys() - rules):
        yield Fault(PAGE, line_of(text, start + named[rule]), f"the judge has no rule `{rule}`")
    for rule in sorted(rules - named.keys()):
        yield Fault(PAGE, line_of(text, start), f"this section lacks the judge's rule `{rule}`")


def list_judged_rules(tree: Tree) -> set[str]:
    """Returns the rules that the judge's modules list."""
    return {
        rule.id
        for module, lists in LISTS.items()
        for node in tree.sources[f"{JUDGE}/{module}.py"].module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in lists and isinstance(node.value, ast.Tuple)
        for rule in node.value.elts
        if isinstance(rule, ast.Name)
    }


RULES = (the_rules_that_are_named_are_the_judges,)

"""Every alert has its page, and every page says what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scripts.house.tree import Fault, Tree, line_of

RULES_FILE = "deploy/monitoring/gpuwright.rules.yml"
PARTS = ["What it means", "What to look at", "What to do"]
LEAST_STEPS = 2


def each_alert_has_its_page_and_each_page_its_alert(tree: Tree) -> Iterator[Fault]:
    text = tree.text(RULES_FILE)
    pages = {path.stem for path in tree.files("docs/runbooks/*.md")} - {"index"}
    alerts = list(re.finditer(r"^ *- alert: Gpuwright(\w+)\n(?:(?! *- alert:).*\n)*", text, re.MULTILINE))
    for alert in alerts:
        found = re.search(r"runbook_url: .*/runbooks/(\w+)/", alert[0])
        line = line_of(text, alert.start())
        if not found or found[1] != alert[1]:
            yield Fault(RULES_FILE, line, f"{alert[1]} does not lead to its page")
        if alert[1] not in pages:
            yield Fault(RULES_FILE, line, f"{alert[1]} has no page docs/runbooks/{alert[1]}.md")
    for name in sorted(pages - {alert[1] for alert in alerts}):
        yield Fault(f"docs/runbooks/{name}.md", 1, "no alert has this name")


def a_page_says_what_it_means_what_to_look_at_and_what_to_do(tree: Tree) -> Iterator[Fault]:
    for path in tree.files("docs/runbooks/*.md"):
        if path.stem != "index":
            name, text = tree.name_of(path), path.read_text()
            yield from (Fault(name, 1, said) for said in _find_page_faults(path.stem, text))


def _find_page_faults(name: str, text: str) -> Iterator[str]:
    if not text.startswith(f"# Gpuwright{name}\n"):
        yield f"does not begin with `# Gpuwright{name}`"
    parts = dict(re.findall(r"^## ([^\n]+)\n\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    if list(parts) != PARTS:
        yield f"its parts are {list(parts)}, not {PARTS}"
        return
    looks, steps = parts["What to look at"], parts["What to do"]
    if "```console\n" not in looks or "gpuwright" not in looks:
        yield "shows no command of gpuwright to look with"
    if len(re.findall(r"^- ", steps, re.MULTILINE)) < LEAST_STEPS:
        yield f"has fewer than {LEAST_STEPS} steps of what to do"


RULES = (
    each_alert_has_its_page_and_each_page_its_alert,
    a_page_says_what_it_means_what_to_look_at_and_what_to_do,
)

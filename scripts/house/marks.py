"""Pages mark what is run, shown or no command, name targets of make that exist, and list every benchmark and room."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scripts.house.pages import pages
from scripts.house.tree import Fault, Tree, line_of
from scripts.house.typed import DATA, SHELL, actions_of, parser_of, read_blocks

# Their tests run their sh blocks.
RUN = {
    "tutorial.md", "three-machines.md", "cpu-cores.md", "own-jobs.md", "own-servers.md", "sql.md", "money.md",
    "testbed.md",
}  # fmt: skip
TARGET = re.compile(r"(?:`|^    (?:\$ )?|^(?:\$ )?)make ([a-z-]+)(?=`| *$| +#)", re.MULTILINE)


def every_block_says_whether_it_is_run_shown_or_no_command(tree: Tree) -> Iterator[Fault]:
    for path in pages(tree.root):
        for block in read_blocks(path):
            if block.kind not in SHELL | DATA:
                said = f"{block.kind!r}: mark it: sh is run by a test, console is shown, text is no command"
                yield Fault(tree.name_of(path), block.line, said)
            elif block.kind == "sh" and path.name not in RUN:
                yield Fault(tree.name_of(path), block.line, "nothing runs the blocks of this page")


def every_target_of_make_that_a_page_names_exists(tree: Tree) -> Iterator[Fault]:
    targets = set(re.findall(r"^([a-z-]+):", tree.text("Makefile"), re.MULTILINE))
    for path in pages(tree.root):
        text = path.read_text()
        for found in TARGET.finditer(text):
            if found[1] not in targets:
                yield Fault(tree.name_of(path), line_of(text, found.start()), f"make has no target {found[1]}")


def the_benchmarks_page_has_a_row_for_each_benchmark(tree: Tree) -> Iterator[Fault]:
    name = "docs/benchmarks.md"
    page = tree.text(name)
    yield from (
        Fault(name, 1, f"lacks a row for `{what}`")
        for what in actions_of(parser_of("bench"))
        if f"| `{what}` | " not in page
    )


def the_architecture_page_lists_every_room(tree: Tree) -> Iterator[Fault]:
    name = "docs/architecture.md"
    page = tree.text(name)
    for top in ("agents", "app", "app/control", "solvers"):
        for path in tree.files(f"{top}/*/__init__.py"):
            if f"`{tree.name_of(path.parent)}/`" not in page:
                yield Fault(name, 1, f"lacks the room `{tree.name_of(path.parent)}/`")


RULES = (
    every_block_says_whether_it_is_run_shown_or_no_command,
    every_target_of_make_that_a_page_names_exists,
    the_benchmarks_page_has_a_row_for_each_benchmark,
    the_architecture_page_lists_every_room,
)

"""What the pages tell people to type is marked, and exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.shell import DATA, DOCS, INLINE, ROOT, SHELL, blocks, commands, fault, indented

PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"]
# Their tests run their sh blocks.
RUN = {
    "tutorial.md", "three-machines.md", "cpu-cores.md", "own-jobs.md", "own-servers.md", "sql.md", "money.md",
    "testbed.md",
}  # fmt: skip


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_says_whether_it_is_run_shown_or_no_command(page: Path) -> None:
    unmarked = [f"{named(page)}:{one.line} {one.kind!r}" for one in blocks(page) if one.kind not in SHELL | DATA]
    assert unmarked == [], "mark it: sh is run by a test, console is shown, text is no command"
    if page.name not in RUN:
        assert [one.line for one in blocks(page) if one.kind == "sh"] == [], "nothing runs the blocks of this page"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_of_gpuwright_in_a_block_is_one_that_it_takes(page: Path) -> None:
    typed = [one.text for one in blocks(page) if one.kind in SHELL] + [indented(page)]
    faults = {" ".join(words): fault(words) for text in typed for words in commands(text)}
    assert {words: said for words, said in faults.items() if said} == {}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_verb_that_the_prose_names_exists(page: Path) -> None:
    wrong = []
    for told in INLINE.findall(page.read_text()):
        for words in commands(told):
            said = fault(words[:1]) if words else ""
            if "there is no verb" in said:
                wrong.append(told)
    assert wrong == []


def test_a_wrong_command_would_be_found() -> None:
    assert "invalid choice" in fault(["plan", "undo", "3"])
    assert fault(["nonsense"]) == "there is no verb 'nonsense'"
    assert fault(["plan", "diff", "42"]) == ""

"""The main path of the documentation stays short: the pages of the first tab, and the words that are defined."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scripts.house.tree import Fault, Tree

NAVIGATION, WORDS_PAGE, BEGIN = "mkdocs.yml", "docs/words.md", "  - Guide:\n"
MOST_PAGES, MOST_WORDS, MOST_DEFINED_WORDS = 20, 40_000, 25
PAGE = re.compile(r"- ([\w/-]+\.md)$", re.MULTILINE)
ROW = re.compile(r"^\| (?!word \|)[^|]*[a-z]", re.MULTILINE)


def the_main_path_is_at_most_twenty_pages_and_forty_thousand_words(tree: Tree) -> Iterator[Fault]:
    navigation = tree.text(NAVIGATION)
    if BEGIN not in navigation:
        yield Fault(NAVIGATION, 1, "the navigation does not begin with the main path, Guide")
        return
    names = list_pages(navigation)
    if len(names) > MOST_PAGES:
        yield Fault(NAVIGATION, 1, f"the main path has {len(names)} pages; at most {MOST_PAGES}")
    counts = {name: len(tree.text(f"docs/{name}").split()) for name in names}
    if (total := sum(counts.values())) > MOST_WORDS:
        longest = max(counts, key=lambda name: counts[name])
        message = f"the main path has {total:,} words; at most {MOST_WORDS:,}; the longest page is {longest}"
        yield Fault(NAVIGATION, 1, message)


def few_words_are_defined(tree: Tree) -> Iterator[Fault]:
    count = len(ROW.findall(tree.text(WORDS_PAGE)))
    if count > MOST_DEFINED_WORDS:
        yield Fault(WORDS_PAGE, 1, f"defines {count} words; at most {MOST_DEFINED_WORDS}")


def list_pages(navigation: str) -> list[str]:
    """Returns the pages of the first tab, down to the second."""
    first = navigation.split(BEGIN, 1)[1]
    return PAGE.findall(re.split(r"^  - \S", first, maxsplit=1, flags=re.MULTILINE)[0])


RULES = (the_main_path_is_at_most_twenty_pages_and_forty_thousand_words, few_words_are_defined)

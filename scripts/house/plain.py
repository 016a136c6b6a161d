"""The code speaks as a colleague would: no words that one only reads in books."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scripts.house.tree import Fault, Tree, line_of

PLACE = "scripts/house/plain.py"  # which has to name them
STILTED = re.compile(r"\b(?:anew|whoever|(?:is|are|was) (?:told|said)|rests until|as it stands)\b", re.IGNORECASE)


def the_product_says_nothing_stilted(tree: Tree) -> Iterator[Fault]:
    for source in tree.product:
        if source.name != PLACE:
            for found in STILTED.finditer(source.text):
                yield source.fault(line_of(source.text, found.start()), f'"{found[0]}"')


RULES = (the_product_says_nothing_stilted,)

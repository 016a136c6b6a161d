"""The currency of a server's money, beside the money that is printed for people."""

from __future__ import annotations

import re

HEADER = "x-currency"  # of the server's answers
CODE = re.compile("[A-Z]{3}")
# Of a heading, what is before `/H`; of a sentence, an amount before `/h` or `an hour`.
IN_HEADING = re.compile(r"(?<=\w)(?=/H\b)|(?<=\w)$")
IN_SENTENCE = re.compile(r"(?<=\d)(?=/h\b| (?:more )?an hour\b)")


def read_currency(header: str) -> str:
    """Returns the currency that an answer names; empty where it names none, or no ISO 4217 code."""
    return header if CODE.fullmatch(header) else ""


def name_currency(sentence: str, currency: str) -> str:
    """Names the currency of the first amount of an hour: `GPUs cost 8.4 an hour` -> `GPUs cost 8.4 EUR an hour`."""
    return IN_SENTENCE.sub(f" {currency}", sentence, count=1) if currency else sentence


def head_amounts(heading: str, currency: str) -> str:
    """Names the currency of a column of amounts: `COST/H` -> `COST EUR/H`, `BUDGET` -> `BUDGET EUR`."""
    return IN_HEADING.sub(f" {currency}", heading, count=1) if currency else heading

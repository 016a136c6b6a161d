"""Reads the YAML that a person wrote for an assessment."""

from __future__ import annotations

import re
from typing import Any

MOST_SHOWN = 100  # characters of a value that a sentence repeats


class YamlRefused(Exception):
    """A text is not YAML; the message says where."""


def load_yaml(text: str) -> Any:
    """Returns what a text holds, by the parser in Python: that in C ends the process where a text is nested deeply.

    Aliases are refused: a few lines of them stand for more values than any memory holds.
    """
    import yaml

    try:
        if "*" in text:
            for event in yaml.parse(text, yaml.SafeLoader):
                if isinstance(event, yaml.AliasEvent):
                    raise YamlRefused(f"it has the alias *{event.anchor}; write out what it stands for")
        return yaml.safe_load(text)
    except RecursionError:
        raise YamlRefused("it is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise YamlRefused(" ".join(str(error).split())) from None


def show_value(value: Any) -> str:
    """Returns a value as a sentence repeats it. YAML's hexadecimal numbers may have more digits than can be written."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def say_outside(value: Any, span: str) -> str:
    """Returns what is wrong with a value that is no number of the span; YAML reads `1e3` as text."""
    is_number = isinstance(value, str) and re.fullmatch(r"[-+]?[0-9.]+[eE][-+]?[0-9]+", value)
    shown = show_value(value)
    return f"{shown} is text in YAML; write it as 1000 or 1.0e+3" if is_number else f"{shown} is outside {span}"

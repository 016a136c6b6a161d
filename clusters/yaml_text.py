"""Reads the YAML that a person wrote for an assessment."""

from __future__ import annotations

import re
from typing import Any


class YamlRefused(Exception):
    """A text is not YAML; the message says where."""


def load_yaml(text: str) -> Any:
    """Returns what a text holds, by the parser in Python: that in C ends the process where a text is nested deeply."""
    import yaml

    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise YamlRefused("it is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise YamlRefused(" ".join(str(error).split())) from None


def say_outside(value: Any, span: str) -> str:
    """Returns what is wrong with a value that is no number of the span; YAML reads `1e3` as text."""
    is_number = isinstance(value, str) and re.fullmatch(r"[-+]?[0-9.]+[eE][-+]?[0-9]+", value)
    return f"{value!r} is text in YAML; write it as 1000 or 1.0e+3" if is_number else f"{value!r} is outside {span}"

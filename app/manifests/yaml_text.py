"""Reads YAML into JSON's types from the event stream, so that every input is counted before it is built."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

from app.manifests.faults import ManifestFault, ManifestsRefused, escape, quote
from app.manifests.limits import InputLimits
from app.manifests.model import JSON
from app.manifests.numbers import REAL

try:
    from yaml.cyaml import CParser  # type: ignore[attr-defined]
except ImportError:  # PyYAML built without libyaml: the same events, some thirty times slower
    CParser = None  # type: ignore[assignment,misc]

MAX_DIRECTIVES = 100
MAX_FAULTS = 100  # of a text; more would not help

# The core schema of YAML 1.2: no yes/no/on/off, no sexagesimal numbers, no timestamps.
WORDS: dict[str, JSON] = {
    **dict.fromkeys(("null", "Null", "NULL", "~"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
SUSPECTS = frozenset("+-.0123456789nNtTfF~")  # the first character of a plain scalar that is not a string
WHOLE = re.compile(r"[-+]?[0-9]+")
BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
SURROGATE = re.compile("[\ud800-\udfff]")
UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def load(text: str, limits: InputLimits, source: str) -> tuple[list[JSON], int]:
    """Returns the documents of the text, `None` for an empty one, and the number of their values."""
    builder = _Builder(limits, source)
    if text.count("\n%TAG") > MAX_DIRECTIVES:  # libyaml compares each with all earlier ones
        raise ManifestsRefused(
            [ManifestFault(source, "", "the text has too many %TAG directives", "values without tags")]
        )
    try:
        parser: Any = CParser(text) if CParser is not None else _PythonParser(text)
        builder.build(parser.get_event)
    except yaml.MarkedYAMLError as error:
        builder.faults.append(_syntax(error, source))
    except (yaml.YAMLError, UnicodeError):
        builder.faults.append(_character(text, source))
    if builder.faults:
        raise ManifestsRefused(builder.faults)
    return builder.documents, builder.counted


class _PythonParser(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)


class _Level:
    """A container that is still open."""

    __slots__ = ("anchor", "characters", "container", "height", "key", "start_mark", "values")
    style = "collection"  # it replaces its own event once it is closed

    def __init__(self, container: Any, anchor: str | None, values: int, characters: int, mark: Any) -> None:
        self.container = container
        self.key: str | None = None  # a mapping's key that waits for its value
        self.anchor = anchor
        self.values = values  # counted when it opened
        self.characters = characters
        self.height = 1
        self.start_mark = mark


class _Builder:
    """Builds values from events, and collects their faults."""

    def __init__(self, limits: InputLimits, source: str) -> None:
        self.limits = limits
        self.source = source
        self.documents: list[JSON] = []
        self.faults: list[ManifestFault] = []
        self.counted = 0  # values
        self.characters = 0
        # anchor -> value, how many values, how many characters, how many levels
        self.anchors: dict[str, tuple[JSON, int, int, int]] = {}
        self.level = _Level(self.documents, None, 0, 0, None)
        self.stack: list[_Level] = []  # the levels around it

    def fault(self, event: Any, message: str, allowed: str = "", value: JSON = None) -> None:
        self.faults.append(ManifestFault(_place(self.source, event.start_mark), "", message, allowed, value))
        if len(self.faults) >= MAX_FAULTS:
            raise ManifestsRefused(self.faults)

    def build(self, next_event: Any) -> None:
        """Builds the documents in one pass. The values of an alias are counted at each repetition."""
        max_values = self.limits.max_values
        steps: dict[type, Callable[[object], object]] = {
            yaml.MappingStartEvent: self.open,
            yaml.SequenceStartEvent: self.open,
            yaml.MappingEndEvent: self.close,
            yaml.SequenceEndEvent: self.close,
            yaml.AliasEvent: self.repeated,
            yaml.DocumentStartEvent: self.begin_document,
        }
        level = self.level
        while True:
            event = next_event()
            kind = type(event)
            if kind is yaml.ScalarEvent:  # most events: a call for each of them would be felt
                value: Any = event.value
                self.characters += len(value)
                if (
                    event.style
                    or not value
                    or value[0] in SUSPECTS
                    or event.tag is not None
                    or event.anchor is not None
                ):
                    value = self.scalar(event, value)
            elif kind in steps:
                value = steps[kind](event)
                level = self.level
                if value is _INCOMPLETE:
                    continue
            elif event is None or kind is yaml.StreamEndEvent:
                return
            else:
                continue
            if level.container.__class__ is list:
                level.container.append(value)
            elif level.key is None:
                level.key = self.key(event, value, level.container)
                continue  # keys are not counted
            else:
                if level.key is not _DROPPED:
                    level.container[level.key] = value
                level.key = None
            self.counted += 1
            if self.counted > max_values:
                raise self.limits.too_many(self.source)

    def begin_document(self, event: object) -> object:
        self.anchors.clear()
        return _INCOMPLETE

    def open(self, event: Any) -> Any:
        """Opens a mapping or a sequence, which counts from now on."""
        self.counted += 1
        if self.counted > self.limits.max_values:
            raise self.limits.too_many(self.source)
        if event.tag is not None:
            self.fault(event, f"the tag {quote(event.tag)} is not supported", "values without tags")
        if event.anchor is not None:
            self.anchors.pop(event.anchor, None)  # so that an alias inside finds nothing, or itself
        self.stack.append(self.level)
        if len(self.stack) > self.limits.max_depth:
            raise self.limits.too_deep(_place(self.source, event.start_mark))
        container: object = {} if type(event) is yaml.MappingStartEvent else []
        self.level = _Level(container, event.anchor, self.counted - 1, self.characters, event.start_mark)
        return _INCOMPLETE

    def close(self, event: object) -> object:
        """Closes the innermost container; returns it, or uses it as the key that it is."""
        closed, around = self.level, self.stack.pop()
        value, height = closed.container, closed.height
        if closed.anchor is not None:
            size = (self.counted - closed.values, self.characters - closed.characters, height)
            self.anchors[closed.anchor] = (value, *size)
        self.counted -= 1  # it was counted when it opened, and the loop counts it again
        if height >= around.height:
            around.height = height + 1
        self.level = around
        if around.container.__class__ is dict and around.key is None:
            around.key = self.key(closed, value, around.container)
            return _INCOMPLETE
        return value

    def repeated(self, event: Any) -> Any:
        """Returns the value that an alias repeats."""
        if event.anchor not in self.anchors:
            self.fault(event, f"the alias {quote(event.anchor)} refers to no earlier anchor")
            return None
        value, values, characters, height = self.anchors[event.anchor]
        self.counted += values - 1
        self.characters += characters
        if self.characters > self.limits.max_bytes:
            raise self.limits.too_many(self.source)
        if len(self.stack) + height > self.limits.max_depth:
            raise self.limits.too_deep(_place(self.source, event.start_mark))
        self.level.height = max(self.level.height, height + 1)
        return value

    def scalar(self, event: Any, text: str) -> JSON:
        """Returns the value of a scalar that is quoted, tagged, anchored or perhaps no string."""
        value: JSON = text
        if event.style:
            if "\0" in text:
                self.fault(event, "a string contains the character NUL")
            elif not text.isascii() and SURROGATE.search(text):  # libyaml finds these by itself
                self.fault(event, "a string contains half of a surrogate pair", "whole characters")
        elif not text or text[0] in SUSPECTS:
            value = self.plain(event, text)
        if event.tag is not None:
            self.fault(event, f"the tag {quote(event.tag)} is not supported", "values without tags")
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, 1, len(text), 0)
        return value

    def plain(self, event: object, text: str) -> JSON:
        """Returns the value of an unquoted scalar."""
        if not text:
            return None
        if text in WORDS:
            return WORDS[text]
        if REAL.fullmatch(text):
            if len(text) > self.limits.max_number_characters:
                self.fault(
                    event,
                    f"the number {escape(text[:20])}... has {len(text)} characters",
                    f"at most {self.limits.max_number_characters} characters",
                )
                return None
            if WHOLE.fullmatch(text):
                return int(text)
            number = float(text)
            if number in (float("inf"), float("-inf")):
                self.fault(event, f"the number {escape(text)} is too large", "a finite number", escape(text))
                return None
            return number
        if BASED.fullmatch(text) and len(text) <= self.limits.max_number_characters:
            return int(text, 0)
        if NOT_FINITE.fullmatch(text):
            self.fault(event, f"{text} is not a finite number", "a finite number", text)
            return None
        return text

    def key(self, event: Any, value: Any, mapping: dict[str, JSON]) -> str:
        """Returns a mapping's key as text: JSON has no other keys, and in a table of batches 8 means "8"."""
        if value.__class__ is not str:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                self.fault(event, f"{quote(value)} is not a valid key", "a string or a number")
                return _DROPPED
            value = str(int(value)) if value == int(value) else repr(value)
        elif value == "<<" and not getattr(event, "style", None):
            self.fault(event, "merge keys (`<<`) are not supported", "every field written out")
            return _DROPPED
        if value in mapping:
            self.fault(event, f"the key {quote(value)} appears twice in one mapping", value=escape(value))
            return _DROPPED
        return value  # type: ignore[no-any-return]


_DROPPED = "".join(("a refused key's ", "value is dropped"))  # compared by identity
_INCOMPLETE: Any = object()  # an event after which no value is complete


# Common mistakes by libyaml's message, each with its remedy.
SLIPS = {
    "mapping values are not allowed in this context": " (a key is indented too far, or a string has ': ': quote it)",
    "found character that cannot start any token": " (indent with spaces, not tabs; quote what begins with @ or `)",
}


def _place(source: str, mark: Any) -> str:
    return f"{source}:{mark.line + 1}:{mark.column + 1}"


def _syntax(error: yaml.MarkedYAMLError, source: str) -> ManifestFault:
    mark = error.problem_mark or error.context_mark
    began = error.context_mark
    since = f" that begins at {began.line + 1}:{began.column + 1}" if began else ""
    context = f": {escape(error.context)}{since}" if error.context else ""
    message = f"this is not YAML{context}: {escape(error.problem or 'unreadable')}"
    if error.problem and "'\\t'" in error.problem:
        message += " (indent with spaces)"
    else:
        message += SLIPS.get(error.problem or "", "")
    return ManifestFault(_place(source, mark) if mark else source, "", message)


def _character(text: str, source: str) -> ManifestFault:
    """Returns a fault with the line and column, where the YAML reader counts bytes."""
    found = UNREADABLE.search(text)
    if not found:
        return ManifestFault(source, "", "this is not YAML: a character cannot be read")
    line = text.count("\n", 0, found.start()) + 1
    column = found.start() - text.rfind("\n", 0, found.start())
    code = f"U+{ord(found[0]):04X}"
    return ManifestFault(f"{source}:{line}:{column}", "", f"the control character {code} is not allowed in YAML")

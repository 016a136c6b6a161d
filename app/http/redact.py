"""Takes secrets out of text before it leaves the process."""

from __future__ import annotations

import re

LONGEST = 32_000  # characters kept of one text; the patterns below are linear, yet a log line should end

_SECRETS: set[str] = set()

_PATTERNS = (
    # our own tokens, and what follows them
    (re.compile(r"gw([jcl]?)_[A-Za-z0-9_\-]{6,}"), r"gw\1_[redacted]"),
    # a JSON Web Token, as pods of Kubernetes have; it begins with {"
    (re.compile(r"(?<![\w\-])eyJ[\w\-]{6,}\.[\w\-]{6,}\.[\w\-]*"), "[redacted]"),
    # scheme://user:password@host; the password may itself hold '@' or '/', and is no longer than this, so that
    # no text makes the search start over and over and each time look at all that follows
    (re.compile(r"(://[^\s:/@\"']*):[^\s\"']{0,300}@"), r"\1:[redacted]@"),
    (re.compile(r"(?i)\b(bearer|basic|digest)\s+[A-Za-z0-9._~+/=\-]{6,}"), r"\1 [redacted]"),
    (
        re.compile(r"(?i)(authorization[\"']?\s*[:=,]\s*b?[\"']?)(?!bearer|basic|digest)[^\s\"',;)]+"),
        r"\1[redacted]",
    ),
    (
        re.compile(
            r"(?i)((?:pass(?:word|wd|phrase)|secret|api[_-]?key|private[_-]?key)[\"']?\s*[:=]\s*[\"']?)[^\s\"',;&)}]+"
        ),
        r"\1[redacted]",
    ),
    # parameters of a statement concern the database alone
    (re.compile(r"\[parameters: [^\n]*"), "[parameters hidden]"),
    (re.compile(r"(DETAIL|CONTEXT):  [^\n]*"), r"\1:  [hidden]"),
)


# One pass that most texts leave at once: the patterns above each need one of these words.
_SUSPICIOUS = re.compile(
    r"(?i)gw[jcl]?_|eyj|://|bearer|basic|digest|authorization|pass|secret|key|\[parameters|detail:|context:"
)


def hide(secret: str) -> None:
    """Removes this text too wherever it occurs, for example a password of the configuration."""
    if len(secret) >= 6:  # a shorter text would occur in every line, and is no secret
        _SECRETS.add(secret)


def redact(text: str) -> str:
    """Returns `text` without tokens, passwords or authorization values."""
    if len(text) > LONGEST:
        text = text[:LONGEST] + "... [cut]"
    for secret in _SECRETS:
        if secret in text:
            text = text.replace(secret, "[redacted]")
    if not _SUSPICIOUS.search(text):
        return text
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text

"""Reads bytes into documents: counted before they are built, refused with line and column."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from app.manifests import json_text, yaml_text
from app.manifests.faults import ManifestFault, ManifestsRefused, escape
from app.manifests.limits import API, OBJECT, OFFLINE, InputLimits
from app.manifests.model import JSON

__all__ = ["API", "OBJECT", "OFFLINE", "Document", "InputLimits", "Media", "read"]

# The command line sends `files`: {"files": [{"name": "fleet.yaml", "text": "..."}]}.
Media: TypeAlias = Literal["yaml", "json", "files"]

BYTE_ORDER_MARK = "\ufeff"
_NOTHING = "null"  # an empty entry of a list is a fault, not an empty document


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it is in its file, not yet validated."""

    source: str  # `fleet.yaml#3`: the third in the file, empty ones included
    value: JSON


def read(data: bytes, media: Media, limits: InputLimits = OFFLINE, source: str = "input") -> list[Document]:
    """Returns every document of a file; refuses it with all faults of its text."""
    if len(data) > limits.max_bytes:
        message = f"the input has {len(data):,} bytes"
        raise ManifestsRefused(
            [ManifestFault(source, "", message, f"at most {limits.max_bytes:,} bytes")], too_large=True
        )
    text = decode(data, source)
    documents = _files(text, limits, source) if media == "files" else _documents(text, media, limits, source)[0]
    if not documents:
        raise ManifestsRefused([ManifestFault(source, "", "the input contains no manifest", "at least one document")])
    return documents


def decode(data: bytes, source: str) -> str:
    """Returns the text, which must be UTF-8, without a byte order mark."""
    try:
        return data.decode("utf-8").removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise ManifestsRefused([ManifestFault(f"{source}:{line}:{column}", "", message, "UTF-8 text")]) from None


def _documents(text: str, media: Media, limits: InputLimits, source: str) -> tuple[list[Document], int]:
    """Returns the documents and the number of values read."""
    values, counted = _json(text, limits, source) if media == "json" else _yaml(text, limits, source)
    found = [
        Document(f"{source}#{place}", value)
        for place, value in enumerate(_flat(values), start=1)
        if value is not None  # an empty document after `---`
    ]
    return found, counted


def _json(text: str, limits: InputLimits, source: str) -> tuple[list[JSON], int]:
    if not text.strip(" \t\r\n"):
        return [], 0
    value, counted = json_text.load(text, limits, source)
    return [value], counted


def _yaml(text: str, limits: InputLimits, source: str) -> tuple[list[JSON], int]:
    if text.lstrip(" \t\r\n")[:1] in {"{", "["}:
        # JSON is YAML, and its reader is four times as fast; the YAML reader decides about text that it refuses.
        try:
            return _json(text, limits, source)
        except ManifestsRefused as refused:
            # Flow style without quotes, comments or another document holds as many values in YAML.
            if refused.too_large and "'" not in text and "#" not in text and "\n-" not in text:
                raise
    return yaml_text.load(text, limits, source)


def _flat(values: list[JSON]) -> list[JSON]:
    """Returns the manifests of all documents: several for a document that is a list."""
    if not any(isinstance(value, list) for value in values):
        return values
    flat: list[JSON] = []
    for value in values:
        if isinstance(value, list):
            flat.extend(_NOTHING if item is None else item for item in value)
        else:
            flat.append(value)
    return flat


def _files(text: str, limits: InputLimits, source: str) -> list[Document]:
    """Returns the documents of several files, which share one limit; raises with the faults of all of them."""
    envelope, rest = json_text.load(text, limits, source)[0], limits.max_values
    files = envelope.get("files") if isinstance(envelope, dict) and len(envelope) == 1 else None
    shape = '{"files": [{"name": "...", "text": "..."}]}'
    if not isinstance(files, list):
        raise ManifestsRefused([ManifestFault(source, "files", "the envelope of files is malformed", shape)])
    documents: list[Document] = []
    faults: list[ManifestFault] = []
    for index, file in enumerate(files):
        name, content = (file.get("name"), file.get("text")) if isinstance(file, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(content, str):
            faults.append(
                ManifestFault(source, f"files[{index}]", "this entry lacks the name or the text of its file", shape)
            )
            continue
        media: Media = "json" if name.endswith(".json") else "yaml"
        try:
            found, counted = _documents(
                content.removeprefix(BYTE_ORDER_MARK), media, replace(limits, max_values=rest), escape(name)
            )
        except ManifestsRefused as refused:
            if refused.too_large:
                raise
            faults += refused.faults
            continue
        if not found:
            faults.append(ManifestFault(escape(name), "", "the file contains no manifest", "at least one document"))
        documents += found
        rest -= counted
    if faults:
        raise ManifestsRefused(faults)
    return documents

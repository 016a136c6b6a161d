"""Writes blocks of Prometheus: the past of a large cluster, which as text for promtool would not fit on a disk.

Formats: https://github.com/prometheus/prometheus/tree/main/tsdb/docs/format. Series that have the same samples share
the work of encoding them; each has its own copy in the block, as if it had been scraped.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

CHUNK_SAMPLES = 120  # as Prometheus cuts them
XOR = 1
MOST_LEADING = 31  # zeros that five bits can tell

Labels: TypeAlias = tuple[tuple[str, str], ...]  # sorted, `__name__` among them


class EncodedChunk(NamedTuple):
    """Samples of one series as they stand in a file."""

    first: int  # milliseconds
    last: int
    samples: int
    data: bytes


def encode_chunks(moments: Sequence[int], values: Sequence[float], interval: int) -> list[EncodedChunk]:
    """Returns chunks of samples that are `interval` milliseconds apart; where there is a gap another begins."""
    found, start = [], 0
    for stop in range(1, len(moments) + 1):
        if stop == len(moments) or stop - start == CHUNK_SAMPLES or moments[stop] - moments[stop - 1] != interval:
            coded = bytes([XOR]) + _encode(moments[start], interval, values[start:stop])
            data = _uvarint(len(coded) - 1) + coded + _checksum(coded)
            found.append(EncodedChunk(moments[start], moments[stop - 1], stop - start, data))
            start = stop
    return found


def _encode(first: int, interval: int, values: Sequence[float]) -> bytes:
    """Returns samples as Gorilla has them: what changes against the sample before, bit by bit."""
    bits = [f"{len(values):016b}", _as_bits(_varint(first)), f"{_raw(values[0]):064b}"]
    leading = trailing = 64  # of the last window of bits; none yet
    for at in range(1, len(values)):
        bits.append(_as_bits(_uvarint(interval)) if at == 1 else "0")  # of the interval's change
        changed = _raw(values[at]) ^ _raw(values[at - 1])
        if not changed:
            bits.append("0")
            continue
        before = min(MOST_LEADING, 64 - changed.bit_length())
        after = (changed & -changed).bit_length() - 1
        if leading < 64 and before >= leading and after >= trailing:
            bits.append("10")
        else:
            leading, trailing = before, after
            bits.append(f"11{leading:05b}{(64 - leading - trailing) % 64:06b}")
        bits.append(f"{changed >> trailing:0{64 - leading - trailing}b}")
    text = "".join(bits)
    text += "0" * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big")


def write_block(
    folder: Path, number: int, span: tuple[int, int], series: Sequence[tuple[Labels, Sequence[EncodedChunk]]]
) -> None:
    """Writes a block of these series, which come in the order of their labels; `span` is in milliseconds."""
    place = folder / f"{number:026d}"  # a ULID
    (place / "chunks").mkdir(parents=True)
    placed: list[tuple[Labels, Sequence[EncodedChunk], list[int]]] = []
    with (place / "chunks" / "000001").open("wb") as file:
        offset = file.write(struct.pack(">IBxxx", 0x85BD40DD, 1))
        for labels, chunks in series:
            places = []
            for chunk in chunks:
                places.append(offset)
                offset += file.write(chunk.data)
            placed.append((labels, chunks, places))
    assert offset < 2**32, "a file of chunks is too long"
    (place / "index").write_bytes(_write_index(placed))
    counts = {
        "numSamples": sum(chunk.samples for _, chunks in series for chunk in chunks),
        "numSeries": len(series),
        "numChunks": sum(len(chunks) for _, chunks in series),
    }
    compacted = {"level": 1, "sources": [place.name]}
    said = {"version": 1, "ulid": place.name, "minTime": span[0], "maxTime": span[1], "stats": counts}
    (place / "meta.json").write_text(json.dumps({**said, "compaction": compacted}))


def _write_index(series: Sequence[tuple[Labels, Sequence[EncodedChunk], Sequence[int]]]) -> bytes:
    """Returns the index: all texts, series with their chunks, and which series have which label."""
    index = bytearray(struct.pack(">IB", 0xBAAAD700, 2))
    texts = sorted({text for labels, *_ in series for label in labels for text in label})
    symbols = len(index)
    index += _section(struct.pack(">I", len(texts)) + b"".join(map(_text, texts)))
    number = {text: _uvarint(at) for at, text in enumerate(texts)}
    starts = len(index)
    postings: dict[tuple[str, str], array[int]] = defaultdict(lambda: array("I"))
    for labels, chunks, places in series:
        index += bytes(-len(index) % 16)
        for label in (("", ""), *labels):
            postings[label].append(len(index) // 16)
        index += _write_series(labels, chunks, places, number)
    lists = len(index)
    table = bytearray()
    for name, value in sorted(postings):
        index += bytes(-len(index) % 4)
        table += b"\2" + _text(name) + _text(value) + _uvarint(len(index))
        found = postings[name, value]
        index += _section(struct.pack(f">I{len(found)}I", len(found), *found))
    empty = len(index)  # a table that nothing reads any more
    index += _section(struct.pack(">I", 0))
    offsets = len(index)
    index += _section(struct.pack(">I", len(postings)) + table)
    contents = struct.pack(">6Q", symbols, starts, lists, empty, lists, offsets)
    return bytes(index + contents + _checksum(contents))


def _write_series(
    labels: Labels, chunks: Sequence[EncodedChunk], places: Sequence[int], number: dict[str, bytes]
) -> bytes:
    entry = bytearray(_uvarint(len(labels)))
    for name, value in labels:
        entry += number[name] + number[value]
    entry += _uvarint(len(chunks))
    for at, (chunk, place) in enumerate(zip(chunks, places, strict=True)):
        since, before = (chunks[at - 1].last, places[at - 1]) if at else (0, 0)
        entry += _uvarint(chunk.first - since) if at else _varint(chunk.first)
        entry += _uvarint(chunk.last - chunk.first) + (_varint(place - before) if at else _uvarint(place))
    return _uvarint(len(entry)) + bytes(entry) + _checksum(entry)


def _section(content: bytes | bytearray) -> bytes:
    return struct.pack(">I", len(content)) + content + _checksum(content)


def _text(text: str) -> bytes:
    coded = text.encode()
    return _uvarint(len(coded)) + coded


def _uvarint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _varint(value: int) -> bytes:
    return _uvarint(value << 1 if value >= 0 else ~(value << 1))


def _raw(value: float) -> int:
    return int.from_bytes(struct.pack(">d", value), "big")


def _as_bits(data: bytes) -> str:
    return "".join(f"{byte:08b}" for byte in data)


def _checksum(data: bytes | bytearray) -> bytes:
    """Returns the CRC-32 of Castagnoli, which the standard library does not have."""
    found = 0xFFFFFFFF
    for byte in data:
        found = REMAINDERS[(found ^ byte) & 0xFF] ^ (found >> 8)
    return struct.pack(">I", found ^ 0xFFFFFFFF)


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


REMAINDERS = tuple(map(_remainder, range(256)))

"""The files of the corpus: compressed questions, a file for each series, and plain answers that a diff can show."""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from tests.net.answers import Acceptance, Answer, Origin, find_origin

FOLDER = Path(__file__).parent / "corpus"
PROBLEM = "problem"
QUESTIONS, ANSWERS, HEAD, ENDING = "questions", "answers.jsonl", "corpus.json", ".jsonl.xz"
Row: TypeAlias = Mapping[str, Any]


class Head(msgspec.Struct, frozen=True, rename="camel"):
    """What is said of the whole corpus."""

    origin: Origin
    part: tuple[str, ...] = ()  # the series that the tests ask, drawn by a seed
    accepted: tuple[Acceptance, ...] = ()


class SeriesHead(msgspec.Struct, frozen=True, rename="camel"):
    """What is said of a series: its kinds, its limits of work, and the fleet as it is declared."""

    kind: str  # problem or cycles
    tags: tuple[str, ...]
    work: int
    seed: int
    documents: list[Row]

    @property
    def family(self) -> str:
        """Returns the kind that it is counted and summed with."""
        return self.tags[0] if self.kind == PROBLEM else f"{self.kind}, {self.tags[0]}"


@dataclass(frozen=True, slots=True)
class Series:
    """Questions that one process answers in turn: a single problem, or cycles that follow each other."""

    name: str
    head: SeriesHead
    moments: Sequence[Row] = ()  # of cycles: all that was known then

    @property
    def size(self) -> int:
        """Returns how many answers it has."""
        return max(1, len(self.moments))


@dataclass(frozen=True, slots=True)
class Corpus:
    """A folder of series and their answers."""

    folder: Path = field(default=FOLDER)

    def list_names(self) -> list[str]:
        """Returns the names of all series."""
        return sorted(path.name.removesuffix(ENDING) for path in (self.folder / QUESTIONS).glob(f"*{ENDING}"))

    def read(self, name: str) -> Series:
        lines = lzma.decompress(self._file(name).read_bytes()).splitlines()
        head = msgspec.json.decode(lines[0], type=SeriesHead)
        return Series(name, head, [msgspec.json.decode(line) for line in lines[1:]])

    def write(self, series: Series) -> None:
        """Writes the questions of a series. The same questions are the same bytes."""
        rows: list[object] = [series.head, *series.moments]
        body = b"\n".join(msgspec.json.encode(row, order="deterministic") for row in rows)
        self._file(series.name).parent.mkdir(parents=True, exist_ok=True)
        self._file(series.name).write_bytes(lzma.compress(body, preset=9 | lzma.PRESET_EXTREME))

    def clear(self, kind: str) -> None:
        """Removes the series of a kind."""
        for name in self.list_names():
            if self.read(name).head.kind == kind:
                self._file(name).unlink()

    def read_head(self) -> Head:
        file = self.folder / HEAD
        return msgspec.json.decode(file.read_bytes(), type=Head) if file.exists() else Head(find_origin())

    def write_head(self, head: Head) -> None:
        text = msgspec.json.format(msgspec.json.encode(head, order="deterministic"))
        (self.folder / HEAD).write_bytes(text + b"\n")

    def read_answers(self) -> dict[str, Answer]:
        """Returns the recorded answers by name."""
        file = self.folder / ANSWERS
        lines = file.read_bytes().splitlines() if file.exists() else []
        found = (msgspec.json.decode(line, type=Answer) for line in lines)
        return {answer.name: answer for answer in found}

    def write_answers(self, answers: Iterable[Answer]) -> None:
        rows = sorted(answers, key=lambda answer: answer.name)
        body = b"".join(msgspec.json.encode(row, order="deterministic") + b"\n" for row in rows)
        (self.folder / ANSWERS).write_bytes(body)

    def _file(self, name: str) -> Path:
        return self.folder / QUESTIONS / f"{name}{ENDING}"

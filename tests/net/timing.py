"""Compares the CPU seconds of answers with those of the recorded commit, which is asked the same questions in turn.

The recorded commit is the last one that changed the recorded answers. It is asked by its own net, so that both sides
only share the questions and this: `--serve` reads names of series and writes the seconds that each took.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import msgspec

from tests.net.asking import AnsweredSeries, ask_all
from tests.net.corpus import ANSWERS, FOLDER, Corpus

ROOT = Path(__file__).parents[2]
MORE_SHARE = 0.05  # of CPU seconds in all
FAMILY_MORE_SHARE = 0.15  # of the seconds of one family
FAMILY_SECONDS = 2.0  # families that take less are shown and not judged


class NotComparable(Exception):
    """The recorded commit cannot be asked; the message says why."""


def serve(corpus: Corpus) -> int:
    """Answers the series whose names come in, one after the other, without counting their work."""
    for line in sys.stdin:
        for found in ask_all(corpus, [line.strip()], 1, is_counted=False):
            spent = AnsweredSeries(found.name, fault=found.fault, cpu_seconds=found.cpu_seconds)
            print(msgspec.json.encode(spent).decode(), flush=True)
    return 0


def compare_seconds(corpus: Corpus, names: Sequence[str]) -> int:
    """Asks both commits alternately, prints their seconds by family, and returns the exit code."""
    try:
        with (
            checked_out_record() as recorded,
            AskedCommit.start(recorded, corpus) as then,
            AskedCommit.start(Checkout(ROOT, Path(sys.executable)), corpus) as now,
        ):
            return show(corpus, list(ask_in_turn(then, now, names)))
    except NotComparable as why:
        print(f"CPU seconds cannot be compared: {why}")
        return 2


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder with the files of a commit, and the Python that has what it requires."""

    folder: Path
    python: Path


@contextmanager
def checked_out_record() -> Iterator[Checkout]:
    """Yields the recorded commit in a folder of its own, with its own packages where they differ from those here."""
    commit = _git("log", "-1", "--format=%H", "--", str(FOLDER / ANSWERS)).decode().strip()
    if not commit:
        raise NotComparable("no commit is known that recorded the answers")
    with TemporaryDirectory(prefix="gpuwright-net-") as name:
        folder = Path(name)
        with subprocess.Popen(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE) as packed:
            assert packed.stdout
            with tarfile.open(fileobj=packed.stdout, mode="r|") as files:
                files.extractall(folder, filter="data")
        print(f"compared with {commit[:12]}, which recorded the answers")
        if not _git("diff", "--name-only", commit, "--", "requirements"):
            yield Checkout(folder, Path(sys.executable))
            return
        print("its requirements differ from those here: it gets an environment of its own")
        if subprocess.run(["make", "install"], cwd=folder, stdout=subprocess.DEVNULL).returncode:
            raise NotComparable(f"the requirements of {commit[:12]} could not be installed; the errors are above")
        yield Checkout(folder, folder / ".venv/bin/python")


def _git(*words: str) -> bytes:
    found = subprocess.run(["git", *words], cwd=ROOT, capture_output=True)
    if found.returncode:
        raise NotComparable(found.stderr.decode().strip())
    return found.stdout


@dataclass(frozen=True, slots=True)
class AskedCommit:
    """A process that answers with the code of a commit."""

    process: subprocess.Popen[str]
    questions: IO[str]
    answers: IO[str]

    @classmethod
    @contextmanager
    def start(cls, checkout: Checkout, corpus: Corpus) -> Iterator[AskedCommit]:
        command = [str(checkout.python), "-m", "tests.net", "--serve", "--corpus", str(corpus.folder.resolve())]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=checkout.folder, text=True, stdin=pipe, stdout=pipe) as process:
            assert process.stdin and process.stdout
            yield cls(process, process.stdin, process.stdout)
            process.stdin.close()

    def ask(self, name: str) -> AnsweredSeries:
        try:
            self.questions.write(f"{name}\n")
            self.questions.flush()
            return msgspec.json.decode(self.answers.readline(), type=AnsweredSeries)
        except (OSError, msgspec.DecodeError):
            code = self.process.wait()
            raise NotComparable(f"a process that answers ended with code {code}; its errors are above") from None


@dataclass(frozen=True, slots=True)
class ComparedSeconds:
    """The CPU seconds of a series, or of several, at both commits."""

    name: str
    then: float
    now: float
    fault: str = ""  # why they are not compared

    @property
    def ratio(self) -> float:
        return self.now / self.then if self.then else 1.0


def ask_in_turn(then: AskedCommit, now: AskedCommit, names: Sequence[str]) -> Iterator[ComparedSeconds]:
    """Yields the seconds of each series; who is asked first changes, as what runs beside does."""
    for number, name in enumerate(names):
        first = then.ask(name) if number % 2 else None
        after = now.ask(name)
        before = first or then.ask(name)
        yield ComparedSeconds(name, before.cpu_seconds, after.cpu_seconds, before.fault or after.fault)


def show(corpus: Corpus, compared: Sequence[ComparedSeconds]) -> int:
    """Prints the seconds by family and in all, and returns 1 where they rise by more than the tolerance."""
    families: dict[str, list[ComparedSeconds]] = defaultdict(list)
    for entry in compared:
        if entry.fault:
            print(f"{entry.name} is not compared: {entry.fault}")
        else:
            families[corpus.read(entry.name).head.family].append(entry)
    lines = [add_up(family, entries) for family, entries in sorted(families.items())]
    lines.append(add_up("all", lines))
    for line in lines:
        print(
            f"{line.name:{max(len(each.name) for each in lines)}}  {line.then:7.1f}  {line.now:7.1f}  {line.ratio:.3f}"
        )
    slower = find_slower(lines)
    print("\n".join(slower))
    return 1 if slower else 0


def add_up(name: str, entries: Sequence[ComparedSeconds]) -> ComparedSeconds:
    return ComparedSeconds(name, sum(entry.then for entry in entries), sum(entry.now for entry in entries))


def find_slower(lines: Sequence[ComparedSeconds]) -> list[str]:
    """Returns a sentence for each family, and for all at the end, that takes too much longer."""
    allowed = [(line, FAMILY_MORE_SHARE) for line in lines[:-1] if line.then >= FAMILY_SECONDS]
    return [
        f"{line.name}: {line.now:.1f} CPU s, {line.then:.1f} at the recorded commit: {line.ratio - 1:.1%} more"
        for line, share in [*allowed, (lines[-1], MORE_SHARE)]
        if line.ratio > 1 + share
    ]

"""Records series of questions with today's answers, and shows how many records there are of each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from tests.net.answers import find_origin
from tests.net.asking import AnsweredSeries, ask_all
from tests.net.corpus import Corpus

PART_SEED = 1
PART_SECONDS = {"problem": 14.0, "cycles": 40.0}  # of what the tests ask, where a loop of five million takes .1 s


def record_answers(corpus: Corpus, names: Sequence[str], processes: int) -> None:
    """Asks these series and keeps their answers beside those of the other series."""
    there = {*corpus.list_names()} - {*names}
    known = [answer for name, answer in corpus.read_answers().items() if name.partition("/")[0] in there]
    found = [*ask_all(corpus, names, processes)]
    for entry in found:
        print(f"{entry.name}: {entry.fault or f'{len(entry.answers)} answers in {entry.cpu_seconds:.1f} CPU s'}")
    corpus.write_answers([*known, *(answer for entry in found for answer in entry.answers)])
    head = corpus.read_head()
    part = sorted([*(name for name in head.part if name in there), *draw_part(corpus, found)])
    corpus.write_head(replace(head, origin=find_origin(), part=tuple(part)))
    print("\n".join(list_kinds(corpus)))


def draw_part(corpus: Corpus, answered: Sequence[AnsweredSeries]) -> list[str]:
    """Returns series that take PART_SECONDS together: the cheapest that bring another kind, and others by a seed."""
    drawn = sorted(answered, key=lambda entry: entry.name)
    Random(PART_SEED).shuffle(drawn)
    part, spent, tags = [], 0.0, set[str]()
    for wants_new_tags in (True, False):
        for entry in sorted(drawn, key=lambda entry: entry.cpu_seconds) if wants_new_tags else drawn:
            head = corpus.read(entry.name).head
            is_wanted = not wants_new_tags or not tags.issuperset(head.tags)
            if entry.name not in part and is_wanted and spent + entry.cpu_seconds <= PART_SECONDS[head.kind]:
                part.append(entry.name)
                spent += entry.cpu_seconds
                tags.update(head.tags)
    return part


def list_kinds(corpus: Corpus) -> list[str]:
    """Returns a line for each kind of record, with their number."""
    counts = count_kinds(corpus)
    width = max(map(len, counts))
    return [f"{kind:{width}}  {count}" for kind, count in sorted(counts.items())]


def count_kinds(corpus: Corpus) -> Counter[str]:
    """Returns the number of records of each kind."""
    counts: Counter[str] = Counter()
    for name in corpus.list_names():
        series = corpus.read(name)
        counts.update(dict.fromkeys((f"all {series.head.kind}", *series.head.tags), series.size))
    return counts

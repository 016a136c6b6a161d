"""The net's command: compares (by default), records, and accepts an intended change. `make net ARGS=...` runs it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from pathlib import Path

from tests.net.accepting import accept
from tests.net.answers import Answer, find_origin
from tests.net.asking import FORKS, ask_all
from tests.net.comparing import COMPARED, Comparison, find_faults, find_sum_faults
from tests.net.corpus import FOLDER, PROBLEM, QUESTIONS, Corpus
from tests.net.recording import list_kinds, record_answers
from tests.net.timing import compare_seconds, serve


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.net", description=__doc__)
    parser.add_argument("names", nargs="*", help="series to ask, or the beginnings of their names; default all")
    parser.add_argument("--part", help="K/N: the Kth of N shares of the part that the tests ask")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="at a time")
    parser.add_argument("--corpus", type=Path, default=FOLDER, help="another folder of questions and answers")
    parser.add_argument("--record", choices=(PROBLEM, "cycles"), help="makes questions and answers again")
    parser.add_argument("--accept", action="store_true", help="keeps today's answers, and prints what changed")
    parser.add_argument("--reason", default="", help="why answers may be worse; kept in the corpus")
    parser.add_argument("--kinds", action="store_true", help="prints how many records there are of each kind")
    parser.add_argument("--time", action="store_true", help="compares CPU seconds with those of the recorded commit")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)  # for --time: names in, seconds out
    args = parser.parse_args()
    corpus = Corpus(args.corpus)
    if args.record:
        return record(corpus, args.record, args.processes)
    if args.serve:
        return serve(corpus)
    if args.kinds:
        print("\n".join(list_kinds(corpus)))
        return 0
    names = choose(corpus, args.names, args.part)
    if not names:
        asked = [*args.names, *(["--part", args.part] if args.part else [])]
        parser.error(f"{' '.join(asked)} names no series of {corpus.folder / QUESTIONS}")
    if args.accept:
        return accept_answers(corpus, names, args.processes, args.reason)
    return compare_seconds(corpus, names) if args.time else compare(corpus, names, args.processes)


def record(corpus: Corpus, what: str, processes: int) -> int:
    """Makes the questions and their answers again."""
    # Those who answer must not know what it computes, so it is a process of its own.
    drawing = FORKS.Process(target=_draw, args=(corpus, what, processes))
    drawing.start()
    drawing.join()
    if drawing.exitcode == 0:
        record_answers(corpus, [name for name in corpus.list_names() if corpus.read(name).head.kind == what], processes)
    return drawing.exitcode or 0


def _draw(corpus: Corpus, what: str, processes: int) -> None:
    from tests.net.record_cycles import draw_cycles
    from tests.net.record_problems import draw_problems

    corpus.clear(what)
    for series in draw_problems() if what == PROBLEM else draw_cycles(processes):
        corpus.write(series)
        print(f"{series.name}: {series.size}", flush=True)


def accept_answers(corpus: Corpus, names: list[str], processes: int, reason: str) -> int:
    """Asks the series again and keeps the answers; refuses what is worse if no reason is given."""
    found = [*ask_all(corpus, names, processes)]
    if faults := [f"{entry.name}: {entry.fault}" for entry in found if entry.fault]:
        print("\n".join(faults))
        return 1
    weighed = accept(corpus, (answer for entry in found for answer in entry.answers), reason)
    print("\n".join([*weighed.lines, *weighed.worse]))
    if weighed.worse and not reason:
        print("nothing is accepted: give --reason")
        return 1
    return 0


def choose(corpus: Corpus, beginnings: list[str], part: str | None) -> list[str]:
    """Returns the names of the series to ask."""
    names = corpus.list_names()
    if part:
        number, count = map(int, part.split("/"))
        names = sorted(corpus.read_head().part)[number - 1 :: count]
    return [name for name in names if not beginnings or name.startswith(tuple(beginnings))]


def compare(corpus: Corpus, names: list[str], processes: int) -> int:
    """Asks the series again and prints by name what is worse than recorded; returns the exit code."""
    began, recorded, origin = time.monotonic(), corpus.read_answers(), find_origin()
    comparison = Comparison(COMPARED, origin == corpus.read_head().origin)
    if not comparison.is_same_origin:
        print("recorded on another kind of processor or with other libraries: rules and figures are compared")
    count, failed, cpu_seconds = 0, 0, 0.0
    families: dict[str, list[tuple[Answer, Answer]]] = defaultdict(list)
    for found in ask_all(corpus, names, processes):
        cpu_seconds += found.cpu_seconds
        if found.fault:
            failed += 1
            print(f"{found.name}: {found.fault}", flush=True)
        family = corpus.read(found.name).head.family
        for answer in found.answers:
            count += 1
            then = recorded.get(answer.name)
            faults = find_faults(then, answer, comparison) if then else ["no answer is recorded"]
            families[family] += [(then, answer)] if then else []
            failed += bool(faults)
            for fault in faults:
                print(f"{answer.name}: {fault}", flush=True)
    for family, pairs in sorted(families.items()):
        for fault in find_sum_faults((then for then, _ in pairs), (now for _, now in pairs)):
            failed += 1
            print(f"sum of {family}: {fault}")
    seconds = time.monotonic() - began
    print(f"{count} answers, {failed} worse or changed; {cpu_seconds:.0f} CPU s, {seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

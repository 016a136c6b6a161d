"""Asks series of questions, each in a process of its own that knows nothing of the others."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import msgspec

from solvers.compiled import read_all
from tests.net.answers import Answer
from tests.net.corpus import PROBLEM, Corpus, Series
from tests.net.cycles import answer_cycles
from tests.net.problems import answer_problem

FORKS = multiprocessing.get_context("fork")  # this process has no threads, and all that is imported is there at once


@dataclass(frozen=True, slots=True)
class AnsweredSeries:
    """The answers of a series, or why there are none."""

    name: str
    answers: tuple[Answer, ...] = ()
    fault: str = ""
    cpu_seconds: float = 0.0


def answer_series(series: Series, is_counted: bool = True) -> list[Answer]:
    """Answers the questions of a series in this process."""
    if series.head.kind == PROBLEM:
        return [answer_problem(series, is_counted)]
    return answer_cycles(series, is_counted)


def ask_all(corpus: Corpus, names: Sequence[str], processes: int, is_counted: bool = True) -> Iterator[AnsweredSeries]:
    """Yields the answers of each series as they come, so many series at a time."""
    read_all()  # the compiled loops, once for all
    waiting, running = list(reversed(names)), dict[Connection, tuple[str, BaseProcess]]()
    while waiting or running:
        while waiting and len(running) < processes:
            name = waiting.pop()
            ours, theirs = FORKS.Pipe(duplex=False)
            asked = FORKS.Process(target=_answer, args=(corpus, name, theirs, is_counted), daemon=True)
            asked.start()
            theirs.close()
            running[ours] = (name, asked)
        for ready in wait(list(running)):
            assert isinstance(ready, Connection)
            name, process = running.pop(ready)
            yield _receive(name, ready, process)


def _receive(name: str, ready: Connection, process: BaseProcess) -> AnsweredSeries:
    try:
        body = ready.recv_bytes()
    except EOFError:
        process.join()
        return AnsweredSeries(name, fault=f"its process ended with code {process.exitcode}; its errors are above")
    finally:
        ready.close()
    process.join()
    return msgspec.json.decode(body, type=AnsweredSeries)


def _answer(corpus: Corpus, name: str, theirs: Connection, is_counted: bool) -> None:
    began = time.process_time()
    answers = answer_series(corpus.read(name), is_counted)
    spent = time.process_time() - began + _children_seconds()
    theirs.send_bytes(msgspec.json.encode(AnsweredSeries(name, tuple(answers), cpu_seconds=spent)))


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

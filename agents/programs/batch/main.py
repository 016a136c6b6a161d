"""Sends each line of a batch to a model server, writes each answer once, and goes on where an earlier process ended.

SIGTERM and SIGINT take no new line, wait for the answers under way, save, and exit with 3 while lines are left. Exit
codes: 0 all lines are answered; 2 the requests are not what was declared; 1 and 3 start it again.
"""

from __future__ import annotations

import _thread
import argparse
import os
import queue
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agents.programs.batch.answers import AnswerFile
from agents.programs.batch.lines import RequestLine, WrongRequests, read_lines, survey
from agents.programs.batch.sending import BatchConnection, SendingRate, ServerBusy, url_fault
from agents.programs.progress import VARIABLE, write_progress

DONE, BROKEN, WRONG, STOPPED = 0, 1, 2, 3
WAIT_SECONDS = 0.05
PROGRESS_SECONDS = 1.0
ASK_SECONDS = 300.0  # for one answer
ENDING_SECONDS = 20.0  # for the answers under way when it is to stop


class BatchRun:
    """Lines on their way: those to send again first, and at most as many at once as the server takes."""

    def __init__(self, answers: AnswerFile, lines: Iterator[RequestLine], url: str, most: int, attempts: int) -> None:
        self._answers = answers
        self._lines = lines
        self._attempts = attempts
        self._again: deque[RequestLine] = deque()
        self._tried: dict[int, int] = {}
        self._work: queue.SimpleQueue[RequestLine | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[RequestLine, dict[str, Any] | ServerBusy]] = queue.SimpleQueue()
        self._pressure = SendingRate(most)
        self._under_way = 0
        self._threads = [threading.Thread(target=self._send, args=(url,), daemon=True) for _ in range(most)]
        self.failed = 0  # answered by an error
        for thread in self._threads:
            thread.start()

    def step(self, stops: bool) -> bool:
        """Sends what may be sent and takes what has come; returns whether anything is left to do."""
        for _ in range(0 if stops else self._pressure.room(self._under_way, time.monotonic())):
            line = self._again.popleft() if self._again else next(self._lines, None)
            if line is None:
                break
            self._under_way += 1
            self._work.put(line)
        if not self._under_way:
            if stops or self._answers.answered == len(self._answers.done):
                return False
            time.sleep(WAIT_SECONDS)  # the server asked for a pause
            return True
        try:
            line, result = self._results.get(timeout=WAIT_SECONDS)
        except queue.Empty:
            return True
        self._under_way -= 1
        self._take(line, result)
        return True

    def _take(self, line: RequestLine, result: dict[str, Any] | ServerBusy) -> None:
        if isinstance(result, ServerBusy):
            self._pressure.note_refusal(result.seconds, time.monotonic())
            tried = self._tried[line.number] = self._tried.get(line.number, 0) + 1
            if tried < self._attempts:
                self._again.append(line)
                return
            result = {"status": 0, "error": f"not answered in {tried} attempts: {result}"}
        else:
            self._pressure.note_answer()
        self.failed += not 200 <= result["status"] < 300
        self._tried.pop(line.number, None)
        self._answers.add(line.number, result)

    def _send(self, url: str) -> None:
        server = BatchConnection(url, ASK_SECONDS)
        while (line := self._work.get()) is not None:
            try:
                self._results.put((line, server.ask(line.body)))
            except ServerBusy as busy:
                self._results.put((line, busy))


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if fault := url_fault(args.url):
        parser.error(f"--url {fault}")
    stops = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # In a thread of its own: this one may hold the lock that setting takes.
        signal.signal(number, lambda *_: _thread.start_new_thread(stops.set, ()))
    try:
        count, fingerprint = survey(args.requests)
        if args.count and count != args.count:
            raise WrongRequests(f"{args.requests} has {count:,} lines, but {args.count:,} were declared")
        answers = AnswerFile(args.results or results_of(args.requests), count, fingerprint)
    except (WrongRequests, FileNotFoundError) as error:
        print(f"gpuwright-batch: {error}", flush=True)  # noqa: T201  its log is what it prints
        return WRONG
    print(f"{answers.answered:,} of {count:,} lines are answered in {answers.path}", flush=True)  # noqa: T201
    return _run(args, answers, count, stops)


def results_of(requests: Path) -> Path:
    """Returns the folder of the results, beside the requests."""
    return requests.with_name(requests.name + ".results")


def _run(args: argparse.Namespace, answers: AnswerFile, count: int, stops: threading.Event) -> int:
    lines = (line for line in read_lines(args.requests) if not answers.done[line.number])
    batch = BatchRun(answers, lines, args.url, args.concurrency, args.attempts)
    reported_at, ends_at = 0.0, float("inf")
    while True:
        now = time.monotonic()
        if now - reported_at >= PROGRESS_SECONDS:
            _report_progress(answers)
            reported_at = now
        if stops.is_set():
            ends_at = min(ends_at, now + ENDING_SECONDS)
        if now >= ends_at or not batch.step(stops.is_set()):
            break
    answers.close()
    _report_progress(answers)
    left = count - answers.answered
    print(f"{answers.answered:,} lines are answered, {left:,} are left; {batch.failed:,} errors", flush=True)  # noqa: T201
    return STOPPED if left else DONE


def _report_progress(answers: AnswerFile) -> None:
    """Writes the progress where the agent reads it."""
    path = os.environ.get(VARIABLE, "")
    if path:
        write_progress(Path(path), answers.answered, answers.saved)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpuwright-batch", description=__doc__)
    parser.add_argument("--requests", type=Path, required=True, help="JSONL file, or a folder of *.jsonl files")
    parser.add_argument(
        "--results", type=Path, default=None, help="folder of the answers; REQUESTS.results if left out"
    )
    parser.add_argument(
        "--url", required=True, help="where each line is sent by POST, such as http://127.0.0.1:8080/v1"
    )
    parser.add_argument("--count", type=int, default=0, help="lines that there must be; 0: any number")
    parser.add_argument("--concurrency", type=int, default=8, help="requests under way at most")
    parser.add_argument("--attempts", type=int, default=20, help="of a line that the server does not take")
    return parser


if __name__ == "__main__":
    sys.exit(main())

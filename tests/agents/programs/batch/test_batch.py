"""gpuwright-batch: every line of a batch is answered exactly once, whenever it is killed."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import pytest

from agents.programs.batch.answers import AnswerFile
from agents.programs.batch.lines import WrongRequests, survey
from agents.programs.batch.sending import BatchConnection, SendingRate, ServerBusy
from tests.support.soak import scaled

LINES = scaled(100_000, 1_500)
KILLS = scaled(20, 4)


class ModelStub:
    """Answers each request with twice its number, and counts; now and then it is too busy."""

    def __init__(self) -> None:
        self.asked: Counter[int] = Counter()
        self.most_at_once = self._at_once = 0
        self.busy_every = 0
        self.answers = 0
        self._lock = Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                stub.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/double"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self.answers += 1
            is_busy = bool(self.busy_every) and self.answers % self.busy_every == 0
            self.asked[body["n"]] += not is_busy
        text = b"" if is_busy else json.dumps({"double": 2 * body["n"]}).encode()
        handler.send_response(503 if is_busy else 200)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)
        with self._lock:
            self._at_once -= 1


@contextmanager
def model_stub() -> Iterator[ModelStub]:
    stub = ModelStub()
    thread = Thread(target=stub.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        stub.server.shutdown()
        stub.server.server_close()
        thread.join()


def write_requests(path: Path, count: int) -> Path:
    path.write_text("".join(f'{{"n": {number}}}\n' for number in range(count)))
    return path


def start(requests: Path, url: str, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "agents.programs.batch.main", "--requests", str(requests), "--url", url, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def results(requests: Path) -> list[dict[str, Any]]:
    path = requests.with_name(requests.name + ".results") / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def must_be_whole(requests: Path, count: int) -> None:
    """Asserts one answer for each line, the right one."""
    found = results(requests)
    assert Counter(answer["line"] for answer in found) == Counter(range(count))
    assert all(answer["body"] == {"double": 2 * answer["line"]} for answer in found)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_random_moments_each_line_is_answered_exactly_once(tmp_path: Path) -> None:
    requests, rng = write_requests(tmp_path / "day.jsonl", LINES), random.Random(11)
    with model_stub() as stub:
        stub.busy_every = 97
        hit = 0
        for _ in range(KILLS):
            goal = min(LINES - 1, stub.answers + rng.randrange(1, max(2, LINES // (KILLS + 2))))
            process = start(requests, stub.url, "--concurrency", "8")
            while process.poll() is None and stub.answers < goal:
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.02))
            hit += process.poll() is None
            process.kill()
            process.communicate()
        assert hit == KILLS, "every kill hits it at work"
        process = start(requests, stub.url, "--count", str(LINES))
        printed = process.communicate()[0].decode()
        assert process.returncode == 0, printed
        must_be_whole(requests, LINES)
        assert stub.most_at_once <= 8
        asked_again = sum(stub.asked.values()) - LINES
        assert asked_again <= KILLS * 8, "only what was under way at a kill is asked again"


@pytest.mark.slow
def test_asked_to_end_it_waits_for_its_answers_and_says_that_lines_are_left(tmp_path: Path) -> None:
    requests = write_requests(tmp_path / "day.jsonl", 50_000)
    with model_stub() as stub:
        process = start(requests, stub.url)
        while stub.answers < 100:
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        printed = process.communicate()[0].decode()
        assert process.returncode == 3, printed
        assert len(results(requests)) == sum(stub.asked.values()), "each answer that came was kept"


def test_a_cut_off_last_answer_is_removed_and_its_line_sent_again(tmp_path: Path) -> None:
    requests = write_requests(tmp_path / "day.jsonl", 20)
    count, fingerprint = survey(requests)
    answers = AnswerFile(tmp_path / "r", count, fingerprint)
    assert answers.add(3, {"body": 6})
    assert not answers.add(3, {"body": 6})
    answers.close()
    whole = answers.path.read_bytes()
    for cut in range(1, 12):
        answers.path.write_bytes(whole + b'{"line":4,"body":8}\n'[:-cut])
        again = AnswerFile(tmp_path / "r", count, fingerprint)
        assert (again.numbers(), again.path.read_bytes()) == ({3}, whole)
        again.close()


def test_two_processes_cannot_write_the_same_results(tmp_path: Path) -> None:
    answers = AnswerFile(tmp_path / "r", 1, "x")
    with pytest.raises(OSError, match="written by another process"):
        AnswerFile(tmp_path / "r", 1, "x")
    answers.close()


def test_other_requests_than_were_declared_are_refused(tmp_path: Path) -> None:
    requests = write_requests(tmp_path / "day.jsonl", 5)
    process = start(requests, "http://127.0.0.1:9/", "--count", "6")
    assert b"has 5 lines, but 6 were declared" in process.communicate()[0]
    assert process.returncode == 2
    AnswerFile(tmp_path / "day.jsonl.results", *survey(requests)).close()
    write_requests(requests, 7)
    with pytest.raises(WrongRequests, match="answers other requests"):
        AnswerFile(tmp_path / "day.jsonl.results", *survey(requests))


def test_a_folder_is_read_in_the_order_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "days"
    folder.mkdir()
    (folder / "b.jsonl").write_text('{"n": 2}')
    (folder / "a.jsonl").write_text('{"n": 0}\n\n{"n": 1}\n')
    with model_stub() as stub:
        process = start(folder, stub.url)
        assert process.wait() == 0
        must_be_whole(folder, 3)


def test_no_link_leads_a_batch_to_files_of_others(tmp_path: Path) -> None:
    secret = tmp_path / "credential.json"
    secret.write_text("gw_canary")
    (tmp_path / "days").mkdir()
    (tmp_path / "days" / "a.jsonl").symlink_to(secret)
    with pytest.raises(WrongRequests, match="outside the folder"):
        survey(tmp_path / "days")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "results.jsonl").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic link"):
        AnswerFile(tmp_path / "r", 1, "x")
    assert secret.read_text() == "gw_canary"


@pytest.mark.parametrize("asked", ["\u00b2", "9" * 400, "-1", "1"])
def test_a_server_cannot_end_a_sender_by_what_it_asks_to_wait(asked: str) -> None:
    class Busy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(503)
            self.send_header("Retry-After", asked)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        connection = BatchConnection(f"http://127.0.0.1:{server.server_port}/", 5)
        with pytest.raises(ServerBusy) as busy:
            connection.ask(b"{}")
        server.shutdown()
    assert busy.value.seconds == (1.0 if asked == "1" else 0.0)


@pytest.mark.slow
def test_a_line_that_no_server_takes_is_answered_with_its_error(tmp_path: Path) -> None:
    requests = write_requests(tmp_path / "day.jsonl", 1)
    process = start(requests, "http://127.0.0.1:9/", "--attempts", "2")
    assert process.wait() == 0
    (answer,) = results(requests)
    assert answer["status"] == 0
    assert answer["error"].startswith("not answered in 2 attempts")


@pytest.mark.parametrize("url", ["ftp://models/v1", "models:8080", "http://", "http://models:eighty/"])
def test_an_address_of_no_server_is_refused_before_a_line_is_read(tmp_path: Path, url: str) -> None:
    process = start(write_requests(tmp_path / "day.jsonl", 1), url)
    said, _ = process.communicate()
    assert process.returncode == 2 and "must look like http://127.0.0.1:8080/v1/x" in said.decode()


def test_an_https_address_is_never_asked_in_plain_text() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = BatchConnection(f"https://127.0.0.1:{listener.getsockname()[1]}/", 5)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(connection.ask, b'{"secret": 1}')
            client, _ = listener.accept()
            with client:
                first = client.recv(1)
            with pytest.raises(ServerBusy):
                asked.result()
    assert first == b"\x16", "the first byte of a TLS handshake"


def test_a_busy_server_gets_fewer_at_once_and_later_more() -> None:
    pressure = SendingRate(8)
    pressure.note_refusal(0.0, 10.0)
    assert pressure.room(0, 10.01) == 0
    assert pressure.room(0, 11.0) == 4
    pressure.note_refusal(5.0, 11.0)
    assert pressure.room(0, 14.0) == 0, "it waits as long as the server asks"
    for _ in range(40):
        pressure.note_answer()
    assert pressure.room(0, 30.0) == 8

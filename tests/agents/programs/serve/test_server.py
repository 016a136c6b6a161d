"""gpuwright-serve as its clients see it: a real process, real connections."""

from __future__ import annotations

import http.client
import json
import random
import signal
import subprocess
import sys
import time
import zlib

import pytest

from tests.agents.programs.serve.running import PATH, Copy, clients, serving
from tests.support.patience import patience, until
from tests.support.soak import scaled

NEVER = "60000"  # ms: only a full batch starts


def test_an_answer_is_to_its_own_request() -> None:
    with serving("--latency", "1:1") as copy:
        answer = copy.infer(b"hello")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.json == {"digest": f"{zlib.crc32(b'hello'):08x}", "batch": 1}


def test_a_batch_starts_when_it_is_full() -> None:
    with serving("--batch", "3", "--batch-timeout-ms", NEVER) as copy, clients(3) as pool:
        early = [pool.submit(copy.infer) for _ in range(2)]
        copy.wait_figure("queue", 2)
        assert not any(each.done() for each in early)
        last = pool.submit(copy.infer)
        assert [each.result().json["batch"] for each in [*early, last]] == [3, 3, 3]


def test_a_batch_starts_when_its_oldest_has_waited_long_enough() -> None:
    with serving("--batch", "64", "--batch-timeout-ms", "300") as copy, clients(2) as pool:
        sizes = [each.result().json["batch"] for each in [pool.submit(copy.infer) for _ in range(2)]]
        assert sizes in ([2, 2], [1, 1])  # together, unless the machine was asleep in between


@pytest.mark.slow
def test_without_a_timeout_the_first_goes_alone_and_the_next_batch_takes_all_that_came_meanwhile() -> None:
    with serving("--max-batch", "4", "--latency", "1:2000;4:1") as copy, clients(6) as pool:
        first = pool.submit(copy.infer)
        until(lambda: copy.figure("open_requests") == 1 and copy.figure("queue") == 0)
        copy.ask("PUT", "/v1/batch", '{"batch": 4}')
        later = [pool.submit(copy.infer) for _ in range(5)]
        copy.wait_figure("queue", 5)
        assert first.result().json["batch"] == 1
        assert sorted(each.result().json["batch"] for each in later) == [1, 4, 4, 4, 4]


def test_batch_and_timeout_change_while_it_serves() -> None:
    with serving("--batch", "8", "--batch-timeout-ms", NEVER, "--max-batch", "16") as copy, clients(3) as pool:
        waiting = [pool.submit(copy.infer) for _ in range(2)]
        copy.wait_figure("queue", 2)
        changed = copy.ask("PUT", "/v1/batch", '{"batch": 2}')
        assert (changed.status, changed.json) == (200, {"batch": 2, "batchTimeoutMs": 60000.0, "maxBatch": 16})
        assert [each.result().json["batch"] for each in waiting] == [2, 2]
        alone = pool.submit(copy.infer)
        copy.wait_figure("queue", 1)
        assert copy.ask("PUT", "/v1/batch", '{"batch": 16, "batchTimeoutMs": 0}').status == 200
        assert alone.result().json["batch"] == 1
        assert (copy.served().batch, copy.served().batch_timeout_ms) == (16, 0.0)


def test_a_batch_beyond_what_the_memory_is_sized_for_is_refused() -> None:
    with serving("--batch", "2", "--max-batch", "4") as copy:
        for body, status in [
            ('{"batch": 5}', 422), ('{"batch": 0}', 422), ('{"batch": true}', 422), ('{"batch": 2.5}', 422),
            ('{"batch": 2, "batchTimeoutMs": -1}', 422), ('{"batch": 2, "batchTimeoutMs": NaN}', 422),
            ('{"batch": 2, "batchTimeoutMs": 1e999}', 422), ("[]", 400), ("{", 400), ("[" * 100_000, 400), ("", 400),
        ]:  # fmt: skip
            assert copy.ask("PUT", "/v1/batch", body).status == status, body
        assert copy.ask("GET", "/v1/batch").json == {"batch": 2, "batchTimeoutMs": 0.0, "maxBatch": 4}


def test_beyond_its_queue_it_says_so_at_once() -> None:
    with serving("--batch", "8", "--batch-timeout-ms", NEVER, "--queue", "2") as copy, clients(2) as pool:
        waiting = [pool.submit(copy.infer) for _ in range(2)]
        copy.wait_figure("queue", 2)
        refused = copy.infer()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        copy.ask("PUT", "/v1/batch", '{"batch": 1}')
        assert [each.result().status for each in waiting] == [200, 200]
        assert (copy.served().counters.requests, copy.served().counters.errors) == (3, 1)


@pytest.mark.slow
def test_it_is_not_ready_until_it_has_loaded() -> None:
    with serving("--start-seconds", "0.8", ready=False) as copy:
        assert copy.ask("GET", "/healthz").status == 503
        assert copy.infer().status == 503
        assert copy.ask("POST", "/v1/warmup").status == 503
        copy.wait_ready()
        assert copy.ask("POST", "/v1/warmup").status == 200
        assert copy.served().counters.requests == 1  # a warm-up is no request


@pytest.mark.slow
def test_a_drain_answers_all_that_was_taken_and_then_ends() -> None:
    never_full = ("--batch", "9", "--batch-timeout-ms", NEVER, "--latency", "9:2000")
    with serving(*never_full) as copy, clients(8) as pool:
        taken = [pool.submit(copy.infer, bytes([number])) for number in range(8)]
        copy.wait_figure("queue", 8)
        drained = copy.ask("POST", "/v1/drain")
        assert drained.status == 200
        late = copy.infer()
        assert (late.status, late.headers["connection"], late.headers["retry-after"]) == (503, "close", "1")
        assert copy.ask("GET", "/healthz").status == 503
        answers = [each.result() for each in taken]
        assert [answer.status for answer in answers] == [200] * 8
        assert all(answer.headers.get("connection") == "close" for answer in answers)
        assert [answer.json["digest"] for answer in answers] == [
            f"{zlib.crc32(bytes([each])):08x}" for each in range(8)
        ]
        assert copy.exit_code() == 0


@pytest.mark.slow
def test_sigterm_is_a_drain() -> None:
    with serving("--batch", "4", "--batch-timeout-ms", NEVER) as copy, clients(2) as pool:
        taken = [pool.submit(copy.infer) for _ in range(2)]
        copy.wait_figure("queue", 2)
        copy.process.send_signal(signal.SIGTERM)
        # No other request will fill the batch: it starts.
        assert [each.result().json["batch"] for each in taken] == [2, 2]
        assert copy.exit_code() == 0


@pytest.mark.slow
def test_under_load_all_that_was_taken_is_answered_whenever_it_is_drained() -> None:
    random.seed(4)
    for _ in range(scaled(50, 4)):
        with serving("--batch", "4", "--latency", "1:0;4:3", "--batch-timeout-ms", "1") as copy, clients(8) as pool:

            def call(copy: Copy = copy) -> tuple[int, int]:
                """Sends requests until it drains or cuts off; counts good answers and refusals."""
                connection = http.client.HTTPConnection("127.0.0.1", copy.port, timeout=patience())
                good = 0
                while True:
                    body = str(random.random()).encode()
                    try:
                        connection.request("POST", PATH, body)
                        answer = connection.getresponse()
                    except (OSError, http.client.HTTPException):
                        return good, 0  # it had ended: never taken, or the server would count one more than we
                    text = answer.read()
                    if answer.status == 503:
                        return good, 1
                    assert json.loads(text)["digest"] == f"{zlib.crc32(body):08x}"
                    good += 1

            calls = [pool.submit(call) for _ in range(8)]
            until(lambda copy=copy: copy.served().counters.requests > 50)  # type: ignore[misc]
            time.sleep(random.random() / 50)
            copy.process.send_signal(signal.SIGTERM)
            good, refused = (sum(counts) for counts in zip(*(each.result() for each in calls), strict=True))
            assert copy.exit_code() == 0
        assert copy.log[-1] == (
            f"gpuwright-serve: drained after {good + refused} requests, {refused} of them failed, 0 more abandoned"
        )


@pytest.mark.slow
def test_an_idle_connection_does_not_keep_a_drained_server() -> None:
    with serving() as copy:
        idle = http.client.HTTPConnection("127.0.0.1", copy.port, timeout=patience())
        idle.request("GET", "/healthz")
        assert idle.getresponse().read()
        copy.process.send_signal(signal.SIGTERM)
        assert copy.exit_code() == 0
        idle.close()


@pytest.mark.slow
def test_all_that_was_sent_is_counted_once() -> None:
    callers, each = 16, scaled(500, 50)
    with serving("--batch", "8", "--latency", "1:1;8:4", "--batch-timeout-ms", "1") as copy, clients(callers) as pool:

        def call(caller: int) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", copy.port, timeout=patience())
            good = 0
            for number in range(each):
                body = f"{caller} {number}".encode()
                connection.request("POST", PATH, body)
                answer = connection.getresponse()
                good += json.loads(answer.read())["digest"] == f"{zlib.crc32(body):08x}"
            connection.close()
            return good

        assert sum(pool.map(call, range(callers))) == callers * each
        served = copy.served()
        assert served.counters.requests == callers * each
        assert served.counters.errors == 0
        assert sum(served.counters.latency_counts) == callers * each
        assert served.batches and served.batch_mean and served.batches * served.batch_mean == callers * each
        assert 1 <= served.batch_mean <= 8
        assert (served.queue, served.dropped) == (0, 0)
        assert copy.figure("batch_size_count") == served.batches


def test_a_client_that_left_takes_no_place_in_a_batch() -> None:
    with serving("--batch", "2", "--batch-timeout-ms", NEVER) as copy, clients(2) as pool:
        leaving = http.client.HTTPConnection("127.0.0.1", copy.port)
        leaving.request("POST", PATH, b"x")
        copy.wait_figure("queue", 1)
        leaving.close()
        copy.wait_figure("queue", 0)
        pair = [pool.submit(copy.infer) for _ in range(2)]
        assert [done.result().json["batch"] for done in pair] == [2, 2]
        assert copy.figure("abandoned_total") == 1
        assert copy.served().counters.requests == 2


def test_unknown_paths_and_methods_are_distinguished() -> None:
    with serving("--name", "resnet") as copy:
        assert copy.ask("POST", "/v1/models/resnet:infer", b"").status == 200
        assert copy.infer().status == 404
        assert copy.ask("GET", "/v1/models/resnet:infer").status == 405
        assert copy.ask("GET", "/v1/drain").status == 405
        assert copy.ask("HEAD", "/healthz").body == b""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--latency", "x"], "'x' must be batch:ms"),
        (["--profile", "/nowhere.json"], "/nowhere.json: "),
        (["--batch", "0"], "--batch 1..4096"),
        (["--batch", "x"], "invalid int value: 'x'"),
        (["--shape", "x"], "--shape 'x' must look like 3,224,224"),
        (["--bat", "1"], "unrecognized arguments"),
    ],
)
def test_words_that_make_no_sense_end_it_at_once_and_are_named(words: list[str], says: str) -> None:
    done = subprocess.run([sys.executable, "-m", "agents.programs.serve.main", *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_port_that_is_taken_is_named() -> None:
    with serving() as copy:
        words = ["-m", "agents.programs.serve.main", "--port", str(copy.port)]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
        assert done.returncode == 1
        assert f"cannot listen on 127.0.0.1:{copy.port}: " in done.stderr


def test_it_outlives_who_reads_its_log() -> None:
    process = subprocess.Popen([sys.executable, "-m", "agents.programs.serve.main"], stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        port = int(process.stderr.readline().rpartition(":")[2])
        process.stderr.close()
        copy = Copy(process, port)
        copy.wait_ready()
        assert copy.infer().status == 200
        process.terminate()
        assert copy.exit_code() == 0
    finally:
        process.kill()
        process.wait()

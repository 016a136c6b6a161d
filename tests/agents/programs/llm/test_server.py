"""gpuwright-llm answers as OpenAI's API does, streams token by token, counts what it did, and ends once drained."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from agents.talk.scraping import read_served
from tests.agents.programs.serve.running import Copy, clients, serving
from tests.support.patience import patience, until

FAST = ("--cost", "baseMs=1,tokenMs=0.01")
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def copy() -> Iterator[Copy]:
    with serving(*FAST, "--name", "org/m", "--context", "200", "--request-seconds", "1", program="llm") as running:
        yield running


def ask(copy: Copy, body: object, path: str = COMPLETIONS) -> tuple[int, Any]:
    answer = copy.ask("POST", path, body if isinstance(body, bytes) else json.dumps(body))
    return answer.status, answer.json


def events(copy: Copy, body: dict[str, Any], path: str = COMPLETIONS) -> list[Any]:
    answer = copy.ask("POST", path, json.dumps({**body, "stream": True}))
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    parts = answer.body.decode().removesuffix("\n\n").split("\n\n")
    assert all(part.startswith("data: ") for part in parts)
    assert parts[-1] == "data: [DONE]"
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-1]]


def figure(copy: Copy, name: str) -> float:
    found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", copy.ask("GET", "/metrics").body.decode(), re.MULTILINE)
    assert found, name
    return float(found[1])


def test_a_completion_has_its_text_and_its_usage(copy: Copy) -> None:
    status, answer = ask(copy, {"model": "org/m", "prompt": "one two three", "max_tokens": 4})
    assert (status, answer["object"], answer["model"]) == (200, "text_completion", "org/m")
    assert answer["choices"][0] == {"index": 0, "text": " 0 1 2 3", "logprobs": None, "finish_reason": "length"}
    assert answer["usage"]["prompt_tokens"] == 3
    assert answer["usage"]["completion_tokens"] == 4
    assert answer["usage"]["total_tokens"] == 7


def test_a_chat_counts_the_words_of_all_messages(copy: Copy) -> None:
    parts = [{"type": "text", "text": "c d"}]
    messages = [{"role": "system", "content": "a b"}, {"role": "user", "content": parts}]
    status, answer = ask(copy, {"messages": messages, "max_completion_tokens": 2}, CHAT)
    assert (status, answer["object"]) == (200, "chat.completion")
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": " 0 1"}
    assert answer["usage"]["prompt_tokens"] == 4


def test_a_stream_has_an_event_for_each_token_and_the_usage_only_if_it_is_asked_for(copy: Copy) -> None:
    plain = events(copy, {"prompt": [1, 2, 3], "max_tokens": 5})
    assert [event["choices"][0]["text"] for event in plain] == [" 1", " 2", " 3", " 4", " 5"]
    assert [event["choices"][0]["finish_reason"] for event in plain] == [None] * 4 + ["length"]
    messages = [{"role": "user", "content": "a b"}]
    counted = events(copy, {"messages": messages, "max_tokens": 2, "stream_options": {"include_usage": True}}, CHAT)
    assert [event["choices"][0]["delta"]["content"] for event in counted[:-1]] == [" 1", " 2"]
    assert [event["usage"] for event in counted[:-1]] == [None, None]
    assert (counted[-1]["choices"], counted[-1]["usage"]["completion_tokens"]) == ([], 2)


def test_a_client_of_http_1_0_gets_a_stream_that_ends_with_the_connection(copy: Copy) -> None:
    body = b'{"prompt": "a", "max_tokens": 2, "stream": true}'
    with socket.create_connection(("127.0.0.1", copy.port), timeout=patience()) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        received = b""
        while more := connection.recv(65536):
            received += more
    head, _, rest = received.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert rest.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"no json", 400, "JSON"),
        (b"[" * 100_000, 400, "JSON"),
        ([], 400, "object"),
        ({}, 400, "prompt"),
        ({"prompt": ["a", "b"]}, 400, "prompt"),
        ({"prompt": "a", "model": "other"}, 404, "'other' does not exist"),
        ({"prompt": "a", "n": 2}, 400, "n must be 1"),
        ({"prompt": "a", "max_tokens": 0}, 400, "max_tokens"),
        ({"prompt": "a", "max_tokens": True}, 400, "max_tokens"),
        ({"prompt": "a", "max_tokens": 200}, 400, "more than 200"),
        ({"prompt": [1] * 200}, 400, "more than 200"),
        ({"prompt": "a", "stream": "yes"}, 400, "stream"),
        ({"prompt": "a", "stream_options": []}, 200, ""),
        ({"prompt": "a", "stream_options": [1]}, 400, "stream_options"),
    ],
)
def test_what_it_cannot_answer_is_refused_with_the_reason(copy: Copy, body: object, status: int, why: str) -> None:
    found, answer = ask(copy, body)
    assert found == status
    assert why in json.dumps(answer)


def test_messages_without_a_text_are_refused(copy: Copy) -> None:
    for messages in (None, [], [1], [{"role": "user"}], [{"content": [{"image": "x"}]}]):
        assert ask(copy, {"messages": messages}, CHAT)[0] == 400


def test_it_lists_its_model_and_gives_an_example_that_it_can_answer(copy: Copy) -> None:
    assert copy.ask("GET", "/v1/models").json["data"][0]["id"] == "org/m"
    example = copy.ask("GET", "/v1/example").json
    assert ask(copy, example["body"], example["path"])[0] == 200
    assert copy.ask("GET", "/nothing").status == 404
    assert copy.ask("GET", COMPLETIONS).status == 405


def test_the_time_it_computes_is_that_of_its_iterations() -> None:
    with serving("--cost", "baseMs=2,weightsMs=3,tokenMs=0.5,sequenceMs=1", program="llm") as running:
        for _ in range(3):
            ask(running, {"prompt": [1] * 10, "max_tokens": 5})
        # A prompt of ten tokens takes 2 + 5 ms, and each of the four tokens after it 2 + 3 + 1 ms.
        assert figure(running, "gpuwright_llm_busy_seconds_total") == pytest.approx(3 * (0.007 + 4 * 0.006))
        assert figure(running, "gpuwright_llm_iterations_total") == 15


@pytest.mark.slow
def test_requests_that_run_together_share_iterations() -> None:
    with serving("--cost", "baseMs=20", "--batch", "8", program="llm") as running, clients(8) as pool:
        asked = [pool.submit(ask, running, {"prompt": "a", "max_tokens": 10}) for _ in range(8)]
        assert [future.result()[0] for future in asked] == [200] * 8
        assert figure(running, "gpuwright_llm_iterations_total") < 8 * 10


def test_its_metrics_are_read_as_those_of_vllm() -> None:
    with serving(*FAST, "--prefix-share", "0.5", program="llm") as running:
        ask(running, {"prompt": [1] * 10, "max_tokens": 5})
        ask(running, {"prompt": [1] * 10, "max_tokens": 1})
        served = read_served("vllm", running.ask("GET", "/metrics").body)
        assert served is not None and served.tokens is not None
        assert (served.counters.requests, served.counters.errors, served.dropped) == (2, 0, 0)
        assert (served.tokens.tokens_in, served.tokens.tokens_out) == (20, 6)
        assert (sum(served.tokens.first_counts), sum(served.tokens.pace_counts)) == (2, 1)
        assert figure(running, "vllm:prefix_cache_hits_total") == 10


@pytest.mark.slow
def test_queues_are_limited_in_requests_and_in_tokens() -> None:
    slow = ("--cost", "baseMs=200", "--batch", "1", "--queue", "2", "--queue-tokens", "50")
    with serving(*slow, program="llm") as running, clients(4) as pool:
        first = pool.submit(ask, running, {"prompt": "a", "max_tokens": 10})
        until(lambda: figure(running, "vllm:num_requests_running") == 1, "it runs")
        second = pool.submit(ask, running, {"prompt": [1] * 50, "max_tokens": 1})
        until(lambda: figure(running, "vllm:num_requests_waiting") == 1, "it waits")
        refused = running.ask("POST", COMPLETIONS, b'{"prompt": "a"}')
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert (first.result()[0], second.result()[0]) == (200, 200)


@pytest.mark.slow
def test_a_drain_lets_streams_end_and_refuses_new_requests() -> None:
    environment = {"GPUWRIGHT_CONTROL_TOKEN": "secret"}
    with serving("--cost", "baseMs=20", environment=environment, program="llm") as running, clients(1) as pool:
        stream = pool.submit(events, running, {"prompt": "a", "max_tokens": 60})
        until(lambda: figure(running, "vllm:generation_tokens_total") > 2, "it streams")
        assert running.ask("POST", "/v1/drain").status == 401
        assert running.ask("POST", "/v1/drain", token="secret").json == {"open": 1}
        assert running.ask("GET", "/health").status == 503
        assert running.ask("POST", COMPLETIONS, b'{"prompt": "a"}').status == 503
        assert len(stream.result()) == 60
        assert running.exit_code() == 0
        assert "drained after 1 answers of 60 tokens" in running.log[-1]


@pytest.mark.slow
def test_sigterm_drains_too() -> None:
    with serving(*FAST, program="llm") as running:
        running.process.send_signal(signal.SIGTERM)
        assert running.exit_code() == 0


@pytest.mark.slow
def test_a_client_who_reads_nothing_is_cut_off_and_harms_no_other() -> None:
    words = ("--cost", "tokenMs=0.001", "--context", "1000000", "--kv-tokens", "2000000", "--request-seconds", "1")
    with serving(*words, program="llm") as running:
        body = json.dumps({"prompt": "a", "max_tokens": 900_000, "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", running.port), timeout=patience()) as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            until(lambda: figure(running, "vllm:generation_tokens_total") > 0, "it streams")
            assert ask(running, {"prompt": "a", "max_tokens": 3})[0] == 200
            aborted = b'finished_reason="abort",model_name="model"} 1'
            until(lambda: aborted in running.ask("GET", "/metrics").body, "it is cut off")


@pytest.mark.parametrize("words", [("--batch", "0"), ("--kv-tokens", "1"), ("--prefix-share", "2"), ("--queue", "0")])
def test_arguments_out_of_range_are_refused(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    from agents.programs.llm.main import main

    with pytest.raises(SystemExit):
        main(list(words))
    said = capsys.readouterr().err
    assert f"error: {' '.join(words)}" in said and " is outside " in said


def test_a_hostile_connection_harms_only_itself(copy: Copy) -> None:
    for sent in (b"nonsense\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", copy.port), timeout=patience()) as connection:
            connection.sendall(sent)
            assert connection.recv(100).startswith(b"HTTP/1.1 4")
    connections = [http.client.HTTPConnection("127.0.0.1", copy.port, timeout=patience()) for _ in range(600)]
    for idle in connections:
        with contextlib.suppress(OSError):
            idle.connect()
    assert ask(copy, {"prompt": "a", "max_tokens": 2})[0] == 200
    for idle in connections:
        idle.close()

"""Control requests to the server: only the agent that started it may send them."""

from __future__ import annotations

import pytest

from tests.agents.programs.serve.running import serving

pytestmark = pytest.mark.slow

TOKEN = "a" * 64
VERBS = [("PUT", "/v1/batch", '{"batch": 2}'), ("POST", "/v1/warmup", ""), ("POST", "/v1/drain", "")]


def test_nobody_controls_a_server_without_its_token() -> None:
    with serving("--max-batch", "4", environment={"GPUWRIGHT_CONTROL_TOKEN": TOKEN}) as copy:
        for method, path, body in VERBS:
            for token in ("", "b" * 64, TOKEN[:-1], TOKEN + "a"):
                assert copy.ask(method, path, body, token=token).status == 401, (method, path, token)
            assert copy.ask(method, f"{path}?x=1", body).status == 401
        assert copy.ask("GET", "/v1/batch").json["batch"] == 1, "whoever reaches the port may read"
        assert copy.infer().status == 200
        for method, path, body in VERBS:
            assert copy.ask(method, path, body, token=TOKEN).status == 200
        assert copy.exit_code() == 0


@pytest.mark.parametrize(("method", "path", "body"), VERBS)
def test_a_server_that_was_started_without_a_token_obeys(method: str, path: str, body: str) -> None:
    with serving("--max-batch", "4") as copy:
        assert copy.ask(method, path, body).status == 200

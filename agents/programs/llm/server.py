"""The server: routes, one iteration after another in real time, streams, and the drain that lets streams end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.http.connection import HttpConnection
from agents.http.loop import LoopServer, Routes
from agents.http.messages import HttpRequest
from agents.programs.llm.adapters import LoadedAdapters
from agents.programs.llm.cost import StubCost, StubLimits
from agents.programs.llm.figures import TokenFigures
from agents.programs.llm.openai import CompletionRequest, RequestRefused, Wording, read_request, usage_of
from agents.programs.llm.scheduler import Iteration, ScheduledRequest, TokenScheduler

BEHIND_SECONDS = 0.05  # an iteration that ends later than planned by less does not delay the next one
RETRY = "Retry-After: 1\r\n"
EVENTS = "text/event-stream; charset=utf-8"
LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """The server's options."""

    model: str
    limits: StubLimits
    context: int  # most tokens of a request, prompt and answer together
    answer_tokens: int = 128  # of a request that does not say
    prefix_share: float = 0.0  # of a prompt's tokens whose keys and values are there already
    most_waiting: int = 1024
    most_waiting_tokens: int = 0  # of prompts; 0: no limit
    request_seconds: float = 15.0
    control_token: str = field(default="", repr=False)
    adapter_places: int = 0  # LoRA adapters that can be loaded; 0: loading is off


@dataclass(slots=True)
class _Answer:
    """The answer to one request while it is computed."""

    connection: HttpConnection
    asked: CompletionRequest
    wording: Wording
    reason: str


class LlmServer:
    """Serves one model. A drained server calls `deaf` once to stop listening, and `finished` when all is answered."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: LlmSettings,
        cost: StubCost,
        deaf: Callable[[], None],
        finished: Callable[[], None],
        busy: Callable[[float], None],
    ) -> None:
        self.settings = settings
        self.figures = TokenFigures()
        self.adapters = LoadedAdapters(settings.model, settings.adapter_places)
        self.ready = False
        self._loop = loop
        self._busy = busy
        self._requests = TokenScheduler(cost, settings.limits, self._count_preempted)
        self._computing = False
        self._ended_at = float("-inf")  # the planned end of the last iteration
        self._number = 0
        routes: Routes = {
            "/health": {"GET": self._health, "HEAD": self._health},
            "/metrics": {"GET": self._metrics},
            "/v1/models": {"GET": self._models},
            "/v1/example": {"GET": self._example},
            "/v1/drain": {"POST": self._drain},
            **({LOAD: {"POST": self._load}, UNLOAD: {"POST": self._unload}} if settings.adapter_places else {}),
            COMPLETIONS: {"POST": self._complete},
            CHAT: {"POST": self._complete},
        }
        self._http = LoopServer(
            loop, settings.request_seconds, routes, settings.control_token, self._refuse, self._lost, self._is_working,
            deaf, finished,
        )  # fmt: skip
        self.accept, self.drain = self._http.accept, self._http.drain

    def loaded(self) -> None:
        self.ready = True

    # Routes

    def _say(self, connection: HttpConnection, status: int, answer: Mapping[str, Any], more: str = "") -> None:
        connection.answer(status, json.dumps(answer).encode(), close=self.draining, more=more)

    def _refuse(self, connection: HttpConnection, status: int, why: str, more: str = "") -> None:
        kind = "invalid_request_error" if status < 500 else "server_error"
        self._say(connection, status, {"error": {"message": why, "type": kind, "code": status}}, more)

    def _health(self, connection: HttpConnection, request: HttpRequest) -> None:
        state = "draining" if self.draining else "ready" if self.ready else "starting"
        self._say(connection, 200 if state == "ready" else 503, {"status": state})

    def _models(self, connection: HttpConnection, request: HttpRequest) -> None:
        base = {"id": self.settings.model, "object": "model", "owned_by": "gpuwright"}
        models = [{**base, "max_model_len": self.settings.context}]
        models += [
            {**base, "id": name, "root": folder, "parent": self.settings.model}
            for name, folder in self.adapters.folders.items()
        ]
        self._say(connection, 200, {"object": "list", "data": models})

    def _load(self, connection: HttpConnection, request: HttpRequest) -> None:
        self._change_adapters(connection, request, self.adapters.load)

    def _unload(self, connection: HttpConnection, request: HttpRequest) -> None:
        self._change_adapters(connection, request, self.adapters.unload)

    def _change_adapters(
        self, connection: HttpConnection, request: HttpRequest, change: Callable[[bytes], str]
    ) -> None:
        try:
            done = change(request.body)
        except RequestRefused as refused:
            self._refuse(connection, refused.status, str(refused))
            return
        self._say(connection, 200, {"message": done})

    def _example(self, connection: HttpConnection, request: HttpRequest) -> None:
        body = {"model": self.settings.model, "prompt": "one two three four", "max_tokens": 8}
        self._say(connection, 200, {"path": COMPLETIONS, "body": body})

    def _drain(self, connection: HttpConnection, request: HttpRequest) -> None:
        self.drain()
        self._say(connection, 200, {"open": self.open_requests})

    def _metrics(self, connection: HttpConnection, request: HttpRequest) -> None:
        share = min(1.0, self._requests.held / self.settings.limits.kv_tokens)
        gauges = {
            "num_requests_running": len(self._requests.running),
            "num_requests_waiting": len(self._requests.waiting),
            "kv_cache_usage_perc": share,
            "gpu_cache_usage_perc": share,  # its name in older releases
        }
        text = self.figures.text(self.settings.model, gauges).encode()
        connection.answer(200, text, close=self.draining, kind="text/plain; version=0.0.4")

    def _complete(self, connection: HttpConnection, request: HttpRequest) -> None:
        chat = request.path.partition("?")[0] == CHAT
        busy = self._why_busy()
        if busy:
            self.figures.rejected += 1
            self._refuse(connection, 503, busy, RETRY)
            return
        try:
            asked = read_request(request.body, chat, (self.settings.model, *self.adapters.folders))
            wanted = self._count_wanted(asked)
        except RequestRefused as refused:
            self._refuse(connection, refused.status, str(refused))
            return
        self._number += 1
        wording = Wording(f"{self._number:012d}", asked.model, int(time.time()), asked)
        cached = min(asked.prompt_tokens - 1, int(asked.prompt_tokens * self.settings.prefix_share))
        reason = "length" if asked.max_tokens is not None else "stop"
        answer = _Answer(connection, asked, wording, reason)
        pending = ScheduledRequest(asked.prompt_tokens, wanted, self._loop.time(), cached, answer)
        connection.waiting = pending
        self._requests.add(pending)
        self._pump()

    def _why_busy(self) -> str:
        """Returns why nothing more is taken; empty if something is."""
        most = self.settings.most_waiting_tokens
        if self.draining or not self.ready:
            return "draining" if self.draining else "starting"
        if len(self._requests.waiting) >= self.settings.most_waiting:
            return "the queue is full"
        return "too many tokens wait" if most and self._requests.waiting_tokens >= most else ""

    def _count_wanted(self, asked: CompletionRequest) -> int:
        """Returns how many tokens the answer gets; raises RequestRefused for more than the model can hold."""
        most = min(self.settings.context, self.settings.limits.kv_tokens) - asked.prompt_tokens
        wanted = asked.max_tokens or min(self.settings.answer_tokens, most)
        if wanted > most or most < 1:
            raise RequestRefused(
                f"{asked.prompt_tokens} prompt tokens and {asked.max_tokens or 1} of the answer are more than "
                f"{most + asked.prompt_tokens}, which the model can hold"
            )
        return wanted

    # Iterations

    @property
    def open_requests(self) -> int:
        return len(self._requests.running) + len(self._requests.waiting)

    def _pump(self) -> None:
        """Starts the next iteration, unless one is being computed."""
        if self._computing or not self.ready:
            return
        iteration = self._requests.next()
        if iteration is None:
            self._ended_at = float("-inf")  # the next iteration has nothing to catch up with
            self._http.check()
            return
        now = self._loop.time()
        begins = self._ended_at if 0 <= now - self._ended_at < BEHIND_SECONDS else now
        seconds = iteration.milliseconds / 1000
        self._computing = True
        self._ended_at = begins + seconds
        self.figures.iterations += 1
        self.figures.busy_seconds += seconds
        self._busy(seconds)
        self._loop.call_at(self._ended_at, self._finish_iteration, iteration)

    def _finish_iteration(self, iteration: Iteration) -> None:
        now = self._loop.time()
        self._computing = False
        before = {id(request): request.last_at for request in iteration.decoding}
        for request in self._requests.ended(iteration, now):
            self._give(request, before.get(id(request), 0.0), now)
        self._pump()

    def _give(self, request: ScheduledRequest, before: float, now: float) -> None:
        """Sends a request its token."""
        self.figures.generation_tokens += 1
        if request.given == 1:
            self.figures.prompt_tokens += request.prompt
            self.figures.cached_tokens += request.cached
            self.figures.first_token.add(now - request.came)
        elif before:
            self.figures.each_token.add(now - before)
        answer: _Answer = request.client
        is_last = request.given >= request.wanted
        if answer.asked.stream:
            if request.given == 1:
                answer.connection.begin(EVENTS)
            answer.connection.part(answer.wording.part(request.given, answer.reason if is_last else ""))
        if is_last:
            self._finish(request, answer, now)

    def _finish(self, request: ScheduledRequest, answer: _Answer, now: float) -> None:
        self.figures.finished[answer.reason] += 1
        self.figures.request.add(now - request.came)
        if request.given > 1:
            self.figures.token_of_request.add((now - request.first_at) / (request.given - 1))
        usage = usage_of(request.prompt, request.given, request.cached)
        if answer.asked.stream:
            answer.connection.part(answer.wording.last(usage))
            answer.connection.end(close=self.draining)
        else:
            body = answer.wording.whole(request.given, answer.reason, usage)
            answer.connection.answer(200, body, close=self.draining)

    def _count_preempted(self) -> None:
        self.figures.preemptions += 1

    def _lost(self, connection: HttpConnection) -> None:
        pending = connection.waiting
        if isinstance(pending, ScheduledRequest) and not pending.gone:
            pending.gone = True
            self.figures.finished["abort"] += 1
        self._pump()

    # The end

    @property
    def draining(self) -> bool:
        return self._http.draining

    def _is_working(self) -> bool:
        return self._computing or self.open_requests > 0

    def summary(self) -> str:
        did = self.figures
        answered = did.finished["length"] + did.finished["stop"]
        return f"{answered} answers of {did.generation_tokens} tokens, {did.finished['abort']} more abandoned"

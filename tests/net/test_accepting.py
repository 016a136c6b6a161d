"""An intended change is accepted with what it changed, and one that is worse in sum only with a reason."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.net.accepting import accept
from tests.net.answers import Answer, Origin
from tests.net.corpus import Corpus, Head

FIRST = Answer(name="demo/0", outcome="rolling", cost=10.0, bound=9.0)
SECOND = Answer(name="demo/1", outcome="rolling", cost=20.0, bound=18.0)
CHEAPER = Answer(name="demo/0", outcome="rolling", cost=9.5, bound=9.0)
DEARER = Answer(name="demo/1", outcome="rolling", cost=21.0, bound=18.0)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    corpus = Corpus(tmp_path)
    corpus.write_answers([FIRST, SECOND])
    corpus.write_head(Head(Origin("a processor", {})))
    return corpus


def test_a_cheaper_decision_is_accepted_and_told(corpus: Corpus) -> None:
    accepted = accept(corpus, [CHEAPER, SECOND], "")
    assert accepted.lines == ("demo/0: cost 9.5, recorded 10",)
    assert corpus.read_answers() == {"demo/0": CHEAPER, "demo/1": SECOND}
    assert corpus.read_head().accepted[-1].changed == ("demo/0",)


def test_a_worse_sum_is_refused_without_a_reason_and_nothing_is_written(corpus: Corpus) -> None:
    refused = accept(corpus, [CHEAPER, DEARER], "")
    assert refused.worse == ("in sum: cost 30.5, recorded 30",)
    assert corpus.read_answers() == {"demo/0": FIRST, "demo/1": SECOND}
    assert corpus.read_head().accepted == ()


def test_a_broken_rule_is_refused_without_a_reason_although_the_answer_costs_less(corpus: Corpus) -> None:
    broken = msgspec.structs.replace(CHEAPER, broken=("memory_fits at node-1/0",))
    assert accept(corpus, [broken, SECOND], "").worse == ("demo/0: breaks memory_fits at node-1/0",)
    assert corpus.read_answers() == {"demo/0": FIRST, "demo/1": SECOND}


def test_the_reason_for_a_worse_sum_is_kept_in_the_corpus(corpus: Corpus) -> None:
    accept(corpus, [FIRST, DEARER], "hand-overs are counted twice as dear")
    assert corpus.read_answers()["demo/1"] == DEARER
    kept = corpus.read_head().accepted[-1]
    assert (kept.reason, kept.changed) == ("hand-overs are counted twice as dear", ("demo/1",))
    assert (kept.before["cost"], kept.after["cost"]) == (30.0, 31.0)


def test_the_same_answers_leave_no_trace(corpus: Corpus) -> None:
    assert accept(corpus, [FIRST, SECOND], "").lines == ()
    assert corpus.read_head().accepted == ()

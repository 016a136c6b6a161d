"""Bytes and places that callers share."""

from __future__ import annotations

import asyncio
import random

from app.http.shares import FairShares, Slots


def test_a_ledger_holds_no_more_than_its_total_nor_anyone_more_than_a_share() -> None:
    ledger = FairShares(total=10, share=6)
    assert ledger.take("a", 6)
    assert not ledger.take("a", 1)
    assert not ledger.take("b", 5)
    assert ledger.take("b", 4)
    ledger.give("a", 6)
    assert ledger.take("c", 6)
    assert (ledger.used, ledger.held("a"), ledger.held("b")) == (10, 0, 4)


def test_a_caller_with_a_free_share_goes_before_one_that_used_its_own_up() -> None:
    async def story() -> list[str]:
        slots, order = Slots(total=2, share=1, queue=10), []
        assert await slots.take("hog", 1)
        assert await slots.take("other", 1)

        async def come(name: str) -> None:
            assert await slots.take(name, 5)
            order.append(name)

        waiting = [asyncio.create_task(come(name)) for name in ("hog", "hog", "guest")]
        await asyncio.sleep(0)
        slots.give("other")
        await waiting[2]
        slots.give("hog")
        await waiting[0]
        slots.give("hog")
        await waiting[1]
        return order

    assert asyncio.run(story()) == ["guest", "hog", "hog"]


def test_who_waits_too_long_leaves_the_queue() -> None:
    async def story() -> None:
        slots = Slots(total=1, share=1, queue=1)
        assert await slots.take("a", 1)
        late = asyncio.create_task(slots.take("b", 0.01))
        await asyncio.sleep(0)
        assert slots.waiting == 1
        assert not await slots.take("c", 1)  # the queue is full
        assert not await late
        assert slots.waiting == 0
        slots.give("a")
        assert await slots.take("b", 1)

    asyncio.run(story())


def test_no_place_is_lost_whoever_gives_up_when() -> None:
    async def story() -> None:
        chance = random.Random(3)
        slots = Slots(total=3, share=2, queue=50)

        async def come(name: str) -> None:
            if await slots.take(name, chance.uniform(0.0, 0.01)):
                try:
                    await asyncio.sleep(chance.uniform(0.0, 0.003))
                finally:
                    slots.give(name)

        tasks = [asyncio.create_task(come(chance.choice("abc"))) for _ in range(40) for _ in range(10)]
        for task in chance.sample(tasks, 100):
            asyncio.get_running_loop().call_later(chance.uniform(0, 0.01), task.cancel)
        held = await asyncio.gather(*tasks, return_exceptions=True)
        assert len(held) == 400
        assert slots.waiting == 0
        assert slots.working == 0

    asyncio.run(story())

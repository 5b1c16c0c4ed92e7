"""Places, memory and turns: who gets them, who waits, who has to go."""

from __future__ import annotations

import asyncio
import random

import pytest

from kts.server.limits import STALLED_S, TURNS_AT_ONCE, Memory, PipelineQueue, Places


class Connection:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.dropped: str | None = None
        self.resumed = 0

    def drop(self, reason: str) -> None:
        self.dropped = reason

    def resume(self) -> None:
        self.resumed += 1


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_new_connection_takes_the_place_of_the_oldest_that_never_sent_a_request() -> None:
    places = Places(3, 10)
    first, second, third, fourth, fifth = (Connection() for _ in range(5))
    for each in (first, second, third):
        assert places.enter(each, "a") is None
    places.spoke(first)
    assert places.enter(fourth, "b") is None
    assert second.dropped is not None
    places.leave(second, "a")
    places.spoke(third)
    places.spoke(fourth)
    assert "max.connections = 3" in (places.enter(fifth, "b") or "")
    assert (first.dropped, third.dropped, fourth.dropped) == (None, None, None)
    places.leave(first, "a")
    assert places.enter(fifth, "b") is None


def test_one_address_cannot_take_all_places() -> None:
    places = Places(100, 2)
    assert [places.enter(Connection(), "a") is None for _ in range(3)] == [True, True, False]
    assert places.enter(Connection(), "b") is None


@pytest.mark.parametrize("no_limit", [0, -1])
def test_without_a_limit_no_request_waits_or_gives_way(no_limit: int) -> None:
    clock = Clock()
    memory = Memory(no_limit, clock)
    old, new = Connection(), Connection()
    assert memory.hold(old, 2**40, finished=False)
    clock.now += 2 * STALLED_S
    assert memory.hold(new, 2**40, finished=False) and memory.relieve() and not memory.is_short
    assert (old.dropped, new.dropped) == (None, None)


def test_what_stalls_gives_way_and_what_is_in_work_does_not() -> None:
    clock = Clock()
    memory = Memory(100, clock)
    work, old, young, new = (Connection() for _ in range(4))
    assert memory.hold(work, 40, finished=True)
    assert memory.hold(old, 50, finished=False)
    clock.now = STALLED_S * 2
    assert memory.hold(young, 5, finished=False)
    assert memory.hold(new, 60, finished=False) is False  # 40 + 5 + 60: the old one was not enough
    assert old.dropped is not None
    assert (work.dropped, young.dropped, new.dropped) == (None, None, None)
    memory.release(work)
    assert new.resumed == 1
    assert memory.used == 65


def test_who_waits_for_memory_is_woken_when_stalled_ones_are_dropped() -> None:
    clock = Clock()
    memory = Memory(100, clock)
    old, new = Connection(), Connection()
    memory.hold(old, 90, finished=False)
    assert memory.hold(new, 20, finished=False) is False
    assert old.dropped is None
    clock.now = STALLED_S
    assert memory.relieve()
    assert (old.dropped is not None, new.dropped, new.resumed) == (True, None, 1)


def test_memory_adds_up_whatever_happens(rng: random.Random) -> None:
    clock = Clock()
    memory = Memory(1000, clock)
    held: dict[Connection, int] = {}
    for _ in range(5000):
        clock.now += rng.random() / 10
        if held and rng.random() < 0.4:
            gone = rng.choice(list(held))
            memory.release(gone)
            held[gone] = 0
        else:
            one = rng.choice([*held, Connection()])
            held[one] = rng.randint(1, 300)
            memory.hold(one, held[one], finished=rng.random() < 0.3)
        for each in [each for each in held if each.dropped]:
            del held[each]
        assert memory.used == sum(held.values())
    for each in held:
        memory.release(each)
    assert memory.used == 0


def test_a_client_that_waits_for_answers_goes_between_those_that_do_not() -> None:
    async def play() -> int:
        turns = PipelineQueue()
        done = 0

        async def greedy() -> None:
            nonlocal done
            while True:
                await turns.wait()
                done += 1

        tasks = [asyncio.ensure_future(greedy()) for _ in range(1000)]
        for _ in range(3):
            await asyncio.sleep(0)
        before = done
        for _ in range(10):  # rounds of the loop, in which another task gets its turn each time
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return done - before

    assert 0 < asyncio.run(play()) <= 11 * TURNS_AT_ONCE


def test_a_turn_of_a_closed_connection_is_nobodys() -> None:
    async def play() -> list[int]:
        turns, done = PipelineQueue(), []

        async def one(number: int) -> None:
            await turns.wait()
            done.append(number)

        tasks = [asyncio.ensure_future(one(number)) for number in range(100)]
        await asyncio.sleep(0)
        for task in tasks[:90]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return done

    assert asyncio.run(play())[-10:] == list(range(90, 100))

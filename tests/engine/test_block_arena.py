"""Blocks of shared memory: never two in one place, and what nobody uses goes back to the system."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from stoker.engine.shared_memory import BlockArena, MemoryFile, Place, block_size

MB = 1 << 20


@pytest.fixture
def arena() -> Iterator[BlockArena]:
    file = MemoryFile()
    yield BlockArena(file)
    file.close()


def taken_bytes(arena: BlockArena) -> int:
    """Memory that the system has set aside for it."""
    return os.fstat(arena.file.fd).st_blocks * 512


@pytest.mark.parametrize("seed", range(4))
def test_blocks_in_use_keep_what_was_written_to_them(arena: BlockArena, seed: int) -> None:
    chance = random.Random(seed)
    held: dict[Place, int] = {}
    for number in range(1, 400):
        if held and chance.random() < 0.45:
            place = chance.choice(list(held))
            assert (arena.view(place) == held.pop(place)).all()
            arena.give(place)
        else:
            nbytes = int(2 ** chance.uniform(0, 21))
            place = arena.take(nbytes)
            assert place not in held and place.nbytes == block_size(nbytes) >= nbytes
            arena.view(place)[:] = held[place] = number % 251
    for place, value in held.items():
        assert (arena.view(place) == value).all()


def test_memory_that_nobody_uses_stays_within_what_was_in_use_at_once(arena: BlockArena) -> None:
    for size in range(1, 40):
        arena.give(arena.take(size * MB))
    assert taken_bytes(arena) <= (39 + 32) * MB


def test_a_block_that_is_taken_again_and_again_keeps_its_memory(arena: BlockArena) -> None:
    for _ in range(40):
        arena.give(arena.take(8 * MB))
    assert taken_bytes(arena) >= 8 * MB, "to have it emptied and filled each time would cost more than the work"


def test_a_file_has_few_extents_however_many_blocks(arena: BlockArena) -> None:
    held = [arena.take(100_000) for _ in range(2000)]
    assert len({place.extent for place in held}) <= 7  # each costs a descriptor in every process
    assert len(set(held)) == 2000

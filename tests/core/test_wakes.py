"""Hints to the leader's loop."""

from __future__ import annotations

from core.wakes import AT_ONCE, TEXT_MAX, Wake, WakeBox, new_jobs_in


def test_a_hint_survives_its_way() -> None:
    """As text and back; what is too long for it says: look at once."""
    for wake in (AT_ONCE, new_jobs_in(["4xa100"]), new_jobs_in(["4xa100", "cpu-8"])):
        assert Wake.of_text(wake.text) == wake
    many = new_jobs_in(f"{number}xa100" for number in range(TEXT_MAX))
    assert Wake.of_text(many.text) == AT_ONCE


async def test_many_hints_are_taken_as_one() -> None:
    """Clusters add up; one that asks for a look at once outweighs them."""
    box = WakeBox()
    box.put(new_jobs_in(["a"]))
    box.put(new_jobs_in(["b"]))
    assert await box.take() == new_jobs_in(["a", "b"])
    assert not box.is_set()
    box.put(AT_ONCE)
    box.put(new_jobs_in(["a"]))
    assert await box.take() == AT_ONCE

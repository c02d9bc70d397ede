"""The guards of a commit, without a store."""

from __future__ import annotations

from dataclasses import replace

from core.changes import AtomicBatch, NewVm, VmMove
from core.commit import KnownRows, judge
from core.vm import VmEvent, advance_vm
from tests.db.builders import Maker, at


def test_refused_units_leave_nothing_behind() -> None:
    """A unit is judged as if those before it were written, and refused ones were not there."""
    maker = Maker()
    one, two, three = maker.vm("a"), maker.vm("b"), maker.vm("a")
    gone = VmMove(one, advance_vm(one, VmEvent.NOT_LISTED, at(1), "gone"))
    units: list[AtomicBatch] = [
        (NewVm(one, 2),),
        (NewVm(two, 2), NewVm(three, 9)),  # the name of the first: b is not made either
        (NewVm(replace(two, cluster="1xl4"), 2),),
        (gone, NewVm(three, 2)),
    ]
    known = KnownRows()
    assert list(judge(units, known)) == [1]
    assert known.vm_counts == {"1xl4": 2}

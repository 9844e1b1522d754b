"""The oracle itself: it must see every overlap, and nothing that is none."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.ledger import Deed, Device, DevicePreparedTwiceError, Entry, Holder, Ledger

LPU_0 = Device(driver="lpu.example.dev", pool="node-a", name="lpu-0")
LPU_1 = Device(driver="lpu.example.dev", pool="node-a", name="lpu-1")


def claim(name: str, *, pod: str = "", admin: bool = False, share: str = "") -> Holder:
    return Holder(
        claim_uid=f"uid-{name}",
        claim_namespace="models",
        claim_name=name,
        pod_uid=f"uid-{pod}",
        pod_name=pod,
        admin=admin,
        share=share,
    )


OLD, NEW = claim("old", pod="llm-0"), claim("new", pod="llm-1")


def test_one_claim_after_the_other_is_clean() -> None:
    ledger = Ledger()
    ledger.prepared("node-a", LPU_0, OLD)
    ledger.unprepared("node-a", LPU_0, OLD.claim_uid)
    ledger.prepared("node-a", LPU_0, NEW)

    ledger.assert_clean()
    assert [entry.holder for entry in ledger.held()] == [NEW]


def test_a_second_claim_before_the_first_was_unprepared_is_an_overlap_and_says_so_in_a_sentence() -> None:
    ledger = Ledger()
    ledger.prepared("node-a", LPU_0, OLD)
    ledger.prepared("node-a", LPU_0, NEW)

    (overlap,) = ledger.violations()
    assert (overlap.first.holder, overlap.second.holder, overlap.ended) == (OLD, NEW, None)
    with pytest.raises(
        DevicePreparedTwiceError,
        match=r"lpu-0 on node node-a was prepared for claim models/new \(pod llm-1\) .* "
        r"while it was still prepared for claim models/old \(pod llm-0\) .*, and it is not over",
    ):
        ledger.assert_clean()


def test_an_overlap_stays_a_violation_after_it_ended_and_tells_how_long_it_lasted() -> None:
    ledger = Ledger()
    ledger.prepared("node-a", LPU_0, OLD)
    second = ledger.prepared("node-a", LPU_0, NEW)
    end = ledger.unprepared("node-a", LPU_0, OLD.claim_uid)
    ledger.unprepared("node-a", LPU_0, NEW.claim_uid)

    (overlap,) = ledger.violations()
    assert overlap.ended == end
    assert overlap.seconds == pytest.approx(end.monotonic - second.monotonic)


@pytest.mark.parametrize("unprepared_first", [True, False], ids=["unprepared first", "prepared first"])
def test_within_one_instant_the_order_of_the_entries_decides(
    monkeypatch: pytest.MonkeyPatch, unprepared_first: bool
) -> None:
    monkeypatch.setattr("lab.ledger.time.monotonic", lambda: 42.0)
    ledger = Ledger()
    ledger.prepared("node-a", LPU_0, OLD)
    if unprepared_first:
        ledger.unprepared("node-a", LPU_0, OLD.claim_uid)
        ledger.prepared("node-a", LPU_0, NEW)
    else:
        ledger.prepared("node-a", LPU_0, NEW)
        ledger.unprepared("node-a", LPU_0, OLD.claim_uid)

    assert [overlap.seconds for overlap in ledger.violations()] == ([] if unprepared_first else [0.0])


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(claim("monitor", admin=True), id="adminAccess"),
        pytest.param(claim("old", pod="llm-9"), id="the same claim, for a second pod"),
    ],
)
def test_what_may_share_a_device_with_its_owner_is_no_overlap(second: Holder) -> None:
    ledger = Ledger()
    ledger.prepared("node-a", LPU_0, OLD)
    ledger.prepared("node-a", LPU_0, second)

    ledger.assert_clean()


def test_admin_access_first_does_not_hide_two_owners_after_it() -> None:
    ledger = Ledger()
    ledger.prepared("node-a", LPU_0, claim("monitor", admin=True))
    ledger.prepared("node-a", LPU_0, OLD)
    ledger.prepared("node-a", LPU_0, NEW)

    assert [(one.first.holder, one.second.holder) for one in ledger.violations()] == [(OLD, NEW)]


def test_two_shares_of_a_device_may_live_together_but_no_share_beside_a_whole_holder() -> None:
    ledger = Ledger()
    ledger.prepared("node-a", LPU_0, claim("half", share="1"))
    ledger.prepared("node-a", LPU_0, claim("other-half", share="2"))
    ledger.assert_clean()

    ledger.prepared("node-a", LPU_0, OLD)
    assert len(ledger.violations()) == 2


def test_devices_of_the_same_name_in_different_pools_are_different_devices() -> None:
    ledger = Ledger()
    ledger.prepared("node-a", LPU_0, OLD)
    ledger.prepared("node-b", Device(LPU_0.driver, "node-b", LPU_0.name), NEW)
    ledger.prepared("node-a", LPU_1, claim("third"))

    ledger.assert_clean()


def test_a_repeated_prepare_is_one_holding_and_one_unprepare_ends_it() -> None:
    ledger = Ledger()
    assert ledger.prepared("node-a", LPU_0, OLD) == ledger.prepared("node-a", LPU_0, OLD)
    ledger.unprepared("node-a", LPU_0, OLD.claim_uid)

    assert ledger.held() == ()
    with pytest.raises(LookupError, match="lpu-0 is not prepared"):
        ledger.unprepared("node-a", LPU_0, OLD.claim_uid)


def test_held_can_be_asked_by_node_and_by_claim() -> None:
    ledger = Ledger()
    first = ledger.prepared("node-a", LPU_0, OLD)
    second = ledger.prepared("node-b", LPU_1, NEW)

    assert ledger.held(node="node-b") == (second,)
    assert ledger.held(claim_uid=OLD.claim_uid) == (first,)
    assert ledger.held() == (first, second)


def test_another_process_reads_the_same_verdict_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "out" / "ledger.jsonl"
    with Ledger(path) as ledger:
        ledger.prepared("node-a", LPU_0, OLD)
        ledger.prepared("node-a", LPU_0, NEW)
        ledger.unprepared("node-a", LPU_0, OLD.claim_uid, cause="reboot")

        loaded = Ledger.load(path)  # while the writer still has it open
        assert loaded.entries() == ledger.entries()
        assert loaded.violations() == ledger.violations()
        assert loaded.held() == ledger.held()


def test_a_line_cut_short_by_a_crash_is_left_out_and_a_foreign_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        ledger.prepared("node-a", LPU_0, OLD)
    with path.open("a") as file:
        file.write('{"number": 1, "deed"')
    assert len(Ledger.load(path).entries()) == 1

    path.write_text('{"something": "else"}\n')
    with pytest.raises(ValueError, match="not a ledger entry"):
        Ledger.load(path)


def test_a_later_life_goes_on_with_the_ledger_and_knows_what_is_held(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.resume(path) as first:
        first.prepared("node-a", LPU_0, OLD)
    with path.open("a") as file:
        file.write('{"number": 1, "deed"')  # the crash

    with Ledger.resume(path) as second:
        assert second.prepared("node-a", LPU_0, OLD).number == 0, "it was prepared before"
        second.prepared("node-a", LPU_0, NEW)
        second.unprepared("node-a", LPU_0, OLD.claim_uid)

    loaded = Ledger.load(path)
    assert [entry.number for entry in loaded.entries()] == [0, 1, 2]
    assert [(one.first.holder, one.second.holder) for one in loaded.violations()] == [(OLD, NEW)]


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.booleans()), max_size=30))
def test_it_agrees_with_counting_the_owners_after_every_entry(deeds: list[tuple[str, bool]]) -> None:
    ledger = Ledger()
    owners: set[str] = set()
    worst = 0
    for name, take in deeds:
        holder = claim(name)
        if take:
            ledger.prepared("node-a", LPU_0, holder)
            owners.add(name)
        elif name in owners:
            ledger.unprepared("node-a", LPU_0, holder.claim_uid)
            owners.discard(name)
        worst = max(worst, len(owners))

    assert bool(ledger.violations()) == (worst > 1)
    assert {entry.holder.claim_name for entry in ledger.held()} == owners


def test_entries_survive_a_round_trip() -> None:
    entry = Ledger().prepared("node-a", LPU_0, claim("x", pod="p", admin=True, share="s"))
    assert Entry.from_json(entry.as_json()) == entry
    assert entry.deed is Deed.PREPARED

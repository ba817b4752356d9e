"""The rules of the hub, one by one, on a ledger that commits when the test says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.control_fakes import SCOPE, FakeLink, FakeListener, World, command
from turnwire.control.domain import (
    CommandKind,
    CommandState,
    DeliveryMode,
    Outcome,
    OutcomeKind,
    OwnedTurn,
)
from turnwire.control.hub import Hub, Limits

TURN = "threads/thread/turns/turn-1"
KEY = (SCOPE, "cmd-00001")
APPLIED = Outcome(OutcomeKind.APPLIED, turn=TURN, applied_sequence=7)


@pytest.fixture
def world() -> World:
    return World()


def attached(
    world: World, *turns: str, name: str = "rt-1", epoch: int = 1, complete: bool = True
) -> FakeLink:
    link = FakeLink(name)
    world.hub.attach(link, [OwnedTurn(SCOPE, turn, epoch) for turn in turns], complete=complete)
    return link


def test_nothing_is_told_or_delivered_before_the_row_is_durable(world: World) -> None:
    link = attached(world, TURN)
    listener = world.submit(command(turn=TURN))
    assert not listener.accepted_rows
    assert not link.deliveries
    world.ledger.commit()
    assert len(listener.accepted_rows) == 1
    assert link.modes == [DeliveryMode.OWNED]


def test_an_outcome_is_told_only_once_it_is_durable(world: World) -> None:
    link = attached(world, TURN)
    listener = world.submit(command(turn=TURN))
    world.ledger.commit()
    world.hub.outcome(link, KEY, APPLIED)
    assert not listener.ends
    assert not link.stored
    world.ledger.commit()
    assert [outcome.kind for outcome in listener.outcomes] == [OutcomeKind.APPLIED]
    assert link.stored == [KEY]


def test_a_row_that_cannot_be_stored_is_refused_and_forgotten(world: World) -> None:
    listener = world.submit(command())
    world.ledger.fail()
    assert listener.refusals[0][1].reason == "STORE_UNAVAILABLE"
    assert world.hub.pending == 0


def test_an_outcome_that_cannot_be_stored_is_tried_again(world: World) -> None:
    link = attached(world, TURN)
    listener = world.submit(command(turn=TURN))
    world.ledger.commit()
    world.hub.outcome(link, KEY, APPLIED)
    world.ledger.fail()
    assert not listener.ends
    world.pass_time(1.1)
    world.ledger.commit()
    assert listener.outcomes[0].kind is OutcomeKind.APPLIED
    assert link.stored == [KEY]


def test_the_first_outcome_stands_even_while_it_is_being_stored(world: World) -> None:
    link = attached(world, TURN)
    listener = world.submit(command(turn=TURN))
    world.ledger.commit()
    world.hub.outcome(link, KEY, APPLIED)
    world.hub.outcome(link, KEY, Outcome(OutcomeKind.STALE))
    world.ledger.commit()
    assert [outcome.kind for outcome in listener.outcomes] == [OutcomeKind.APPLIED]
    assert link.stored == [KEY]


def test_two_sendings_at_once_are_one_command(world: World) -> None:
    one, two = world.submit(command(body="a")), world.submit(command(body="a"))
    other = world.submit(command(body="b"))
    world.ledger.commit()
    assert [known for _, known in one.accepted_rows + two.accepted_rows] == [False, True]
    assert other.refusals[0][1].reason == "COMMAND_ID_REUSED"
    assert world.hub.pending == 1


def test_an_ended_command_sent_again_has_its_stored_outcome_at_once(world: World) -> None:
    link = attached(world, TURN)
    world.submit(command(turn=TURN))
    world.ledger.commit()
    world.hub.outcome(link, KEY, APPLIED)
    world.ledger.commit()
    again = world.submit(command(turn=TURN))
    world.ledger.commit()
    assert again.accepted_rows[0][1]
    assert again.outcomes[0].applied_sequence == 7
    assert len(link.deliveries) == 1


def test_a_follower_hears_of_its_own_commands_once(world: World) -> None:
    link = attached(world, TURN)
    client = FakeListener(client_id="client")
    world.hub.followers.add(client, SCOPE, "client")
    world.submit(command(turn=TURN), client)
    world.submit(command("cmd-00002"), FakeListener())
    world.ledger.commit()
    world.hub.outcome(link, KEY, APPLIED)
    world.ledger.commit()
    assert not client.ends
    assert [row.command_id for row in client.changes if row.done] == ["cmd-00001"]


def test_a_listener_that_has_left_hears_nothing(world: World) -> None:
    link = attached(world, TURN)
    early = world.submit(command("cmd-00002", turn=TURN))
    world.hub.leave(early, (SCOPE, "cmd-00002"))
    listener = world.submit(command(turn=TURN))
    world.ledger.commit()
    world.hub.leave(listener, KEY)
    world.hub.outcome(link, KEY, APPLIED)
    world.ledger.commit()
    assert not early.accepted_rows
    assert not listener.ends


def test_an_unclaimed_command_goes_to_any_runtime_after_a_while(world: World) -> None:
    link = attached(world)
    world.submit(command(turn=TURN))
    world.ledger.commit()
    world.pass_time(0.19)
    assert not link.deliveries
    world.pass_time(0.02)
    assert link.modes == [DeliveryMode.UNOWNED]


def test_unowned_commands_take_turns_over_the_runtimes(world: World) -> None:
    one, two = attached(world, name="rt-1"), attached(world, name="rt-2")
    for n in range(4):
        world.submit(command(f"cmd-0000{n}", turn=f"threads/thread/turns/turn-{n}"))
    world.ledger.commit()
    world.pass_time(0.3)
    assert len(one.deliveries) == len(two.deliveries) == 2


def test_a_command_without_any_runtime_is_noted_as_offered_before_the_first_one_gets_it(world: World) -> None:
    world.submit(command(turn=TURN))
    world.ledger.commit()
    assert not world.ledger.rows[KEY].offered
    link = attached(world, TURN)
    assert not link.deliveries
    world.ledger.commit()
    assert world.ledger.rows[KEY].offered
    assert link.modes == [DeliveryMode.OWNED]


def test_a_command_that_reached_nobody_expires_by_itself(world: World) -> None:
    listener = world.submit(command(ttl=5.0))
    world.ledger.commit()
    world.pass_time(5.0)
    world.ledger.commit()
    assert [outcome.kind for outcome in listener.outcomes] == [OutcomeKind.EXPIRED]


def test_a_command_that_a_runtime_has_does_not_expire_while_it_owes_the_answer(world: World) -> None:
    link = attached(world, TURN)
    listener = world.submit(command(turn=TURN, ttl=5.0))
    world.ledger.commit()
    world.pass_time(20.0)
    world.ledger.commit()
    assert not listener.ends
    assert link.modes == [DeliveryMode.OWNED]
    world.pass_time(20.0)
    assert link.modes == [DeliveryMode.OWNED, DeliveryMode.QUERY_ONLY]
    world.hub.not_applied(link, KEY)
    world.ledger.commit()
    assert listener.outcomes[0].kind is OutcomeKind.EXPIRED


def test_a_command_lost_with_its_runtime_is_asked_after_before_it_expires(world: World) -> None:
    link = attached(world, TURN)
    listener = world.submit(command(turn=TURN, ttl=5.0))
    world.ledger.commit()
    world.hub.detach(link)
    world.pass_time(60.0)
    world.ledger.commit()
    assert not listener.ends, "nobody can say that it was not applied"
    other = attached(world, name="rt-2")
    assert other.modes == [DeliveryMode.QUERY_ONLY]
    assert other.deliveries[0][1].remaining_seconds == 0
    world.hub.not_applied(other, KEY)
    world.ledger.commit()
    assert listener.outcomes[0].kind is OutcomeKind.EXPIRED


def test_a_restart_takes_up_what_was_open_and_waits_for_the_owner_to_come_back(world: World) -> None:
    attached(world, TURN)
    world.submit(command(turn=TURN))
    world.ledger.commit()
    world.restart()
    stranger = attached(world, name="rt-2")
    world.pass_time(2.0)
    assert not stranger.deliveries
    owner = attached(world, TURN)
    assert owner.modes == [DeliveryMode.OWNED]


def test_a_restart_gives_no_position_twice_and_remembers_cancels(world: World) -> None:
    link = attached(world, TURN)
    world.submit(command(turn=TURN))
    world.ledger.commit()
    world.hub.outcome(link, KEY, APPLIED)
    world.ledger.commit()
    world.restart()
    second = world.submit(command("cmd-00002", turn=TURN))
    world.ledger.commit()
    assert second.outcomes[0].kind is OutcomeKind.DUPLICATE
    positions = [row.position for row in world.ledger.rows.values()]
    assert len(set(positions)) == len(positions)


def test_a_second_cancel_waits_for_the_first_and_is_its_duplicate(world: World) -> None:
    link = attached(world, TURN)
    world.submit(command(turn=TURN))
    second = world.submit(command("cmd-00002", turn=TURN))
    world.ledger.commit()
    assert len(link.deliveries) == 1
    world.hub.outcome(link, KEY, APPLIED)
    world.ledger.commit()
    world.ledger.commit()
    assert second.outcomes[0].kind is OutcomeKind.DUPLICATE
    assert second.outcomes[0].duplicate_of == "cmd-00001"


def test_a_second_cancel_is_delivered_when_the_first_came_to_nothing(world: World) -> None:
    link = attached(world, TURN)
    world.submit(command(turn=TURN))
    second = world.submit(command("cmd-00002", turn=TURN))
    world.ledger.commit()
    world.hub.outcome(link, KEY, Outcome(OutcomeKind.STALE))
    world.ledger.commit()
    assert [delivery.row.command_id for _, delivery in link.deliveries] == ["cmd-00001", "cmd-00002"]
    world.hub.outcome(link, (SCOPE, "cmd-00002"), APPLIED)
    world.ledger.commit()
    assert second.outcomes[0].kind is OutcomeKind.APPLIED


def test_a_cancel_that_clears_the_queue_is_no_duplicate_of_one_that_does_not(world: World) -> None:
    link = attached(world, TURN)
    world.submit(command(turn=TURN))
    world.submit(command("cmd-00002", turn=TURN, clear_queue=True))
    world.ledger.commit()
    assert len(link.deliveries) == 2


def test_a_thread_wide_cancel_goes_to_the_owner_of_its_live_turn(world: World) -> None:
    link = attached(world, TURN)
    attached(world, "threads/other/turns/turn-1", name="rt-2")
    world.submit(command(thread="threads/thread"))
    world.ledger.commit()
    assert link.modes == [DeliveryMode.OWNED]
    world.hub.acked(link, 1, TURN)
    world.ledger.commit()
    assert world.ledger.rows[KEY].bound_turn == TURN
    assert world.ledger.rows[KEY].state is CommandState.DELIVERED


def test_an_outcome_binds_a_thread_wide_command_that_was_not_bound_before(world: World) -> None:
    link = attached(world)
    world.submit(command(thread="threads/thread"))
    world.ledger.commit()
    world.pass_time(0.3)
    world.hub.outcome(link, KEY, APPLIED)
    world.ledger.commit()
    assert world.ledger.rows[KEY].bound_turn == TURN


def test_a_runtime_that_takes_nothing_loses_its_turns_and_its_commands(world: World) -> None:
    stuck = attached(world, TURN, name="rt-1")
    stuck.full = True
    other = attached(world, name="rt-2")
    world.submit(command(turn=TURN))
    world.ledger.commit()
    world.pass_time(0.3)
    assert world.hub.runtimes == 1
    assert other.modes == [DeliveryMode.UNOWNED]


def test_a_close_that_is_older_than_the_ownership_changes_nothing(world: World) -> None:
    link = attached(world, TURN, epoch=2)
    world.hub.closed(link, [OwnedTurn(SCOPE, TURN, 1)])
    assert world.hub.owned_turns == 1
    world.hub.closed(link, [OwnedTurn(SCOPE, TURN, 2)])
    assert world.hub.owned_turns == 0


def test_a_runtime_that_closes_a_turn_still_answers_what_it_was_given(world: World) -> None:
    link = attached(world, TURN)
    listener = world.submit(command(turn=TURN))
    world.ledger.commit()
    world.hub.closed(link, [OwnedTurn(SCOPE, TURN, 1)])
    world.pass_time(1.0)
    assert len(link.deliveries) == 1
    world.hub.outcome(link, KEY, APPLIED)
    world.ledger.commit()
    assert listener.outcomes[0].kind is OutcomeKind.APPLIED


@pytest.mark.parametrize(
    ("kind", "roles", "reason"),
    [
        (CommandKind.CANCEL_TURN, {"approver"}, "ROLE_MISSING"),
        (CommandKind.INJECT_STEER, {"caller"}, "FEATURE_NOT_SERVED"),
        (CommandKind.PAUSE_GRAPH, {"operator"}, "FEATURE_NOT_SERVED"),
        (CommandKind.CANCEL_RUN, {"caller"}, "INVALID_REQUEST"),
    ],
)
def test_a_rejected_command_is_accepted_and_ends_in_the_ledger(
    world: World, kind: CommandKind, roles: set[str], reason: str
) -> None:
    link = attached(world, TURN)
    listener = world.submit(command(turn=TURN, kind=kind), roles=frozenset(roles))
    world.ledger.commit()
    assert len(listener.accepted_rows) == 1
    assert (listener.outcomes[0].kind, listener.outcomes[0].reason) == (OutcomeKind.REJECTED, reason)
    assert world.ledger.rows[KEY].body is None
    assert not link.deliveries
    assert world.hub.pending == 0


def test_a_scope_cannot_take_all_the_room(world: World) -> None:
    world.hub = Hub(
        world.ledger, world.clock, arm=lambda _: None, limits=Limits(pending=3, pending_per_scope=2)
    )
    for n in range(2):
        world.submit(command(f"cmd-0000{n}", turn=f"threads/thread/turns/turn-{n}"))
    refused = world.submit(command("cmd-00009"))
    assert refused.refusals[0][1].reason == "OVERLOADED"


def test_a_draining_hub_refuses_new_commands_and_finishes_old_ones(world: World) -> None:
    link = attached(world, TURN)
    old = world.submit(command(turn=TURN))
    world.ledger.commit()
    world.hub.drain()
    assert world.submit(command("cmd-00002")).refusals[0][1].reason == "DRAINING"
    world.hub.outcome(link, KEY, APPLIED)
    world.ledger.commit()
    assert old.ends


async def test_idle_waits_for_runtimes_and_the_ledger_but_not_for_what_is_safe(world: World) -> None:
    world.submit(command("cmd-00002", turn="threads/thread/turns/turn-2"))
    world.ledger.commit()
    await world.hub.idle()


def test_open_rows_are_those_without_an_outcome_newest_first(world: World) -> None:
    attached(world, TURN)
    world.submit(command(turn=TURN))
    world.submit(command("cmd-00002"))
    assert world.hub.open_rows(SCOPE) == []
    world.ledger.commit()
    assert [row.command_id for row in world.hub.open_rows(SCOPE)] == ["cmd-00002", "cmd-00001"]
    assert world.hub.open_rows("another") == []
    found = world.hub.find(KEY)
    assert found == replace(world.ledger.rows[KEY])

"""Takeovers as the hub hears of them: the highest epoch has the turn, in whatever order it is told."""

from __future__ import annotations

import pytest

from support.control_fakes import SCOPE, FakeLink, World, command
from turnwire.control.domain import DeliveryMode, OwnedTurn

TURN = "threads/thread/turns/turn-1"


@pytest.fixture
def world() -> World:
    return World()


def attached(world: World, *turns: str, name: str, epoch: int = 1) -> FakeLink:
    link = FakeLink(name)
    world.hub.attach(link, [OwnedTurn(SCOPE, turn, epoch) for turn in turns], complete=True)
    return link


def test_a_runtime_that_lost_a_turn_does_not_get_its_commands_by_telling_of_it_late(world: World) -> None:
    taker = attached(world, TURN, name="rt-2", epoch=2)
    former = attached(world, TURN, name="rt-1", epoch=1)
    world.hub.opened(former, [OwnedTurn(SCOPE, TURN, 1)])
    world.submit(command(turn=TURN))
    world.ledger.commit()
    assert (taker.modes, former.modes) == ([DeliveryMode.OWNED], [])
    world.hub.closed(former, [OwnedTurn(SCOPE, TURN, 1)])
    world.submit(command("cmd-00002", turn=TURN))
    world.ledger.commit()
    assert not former.deliveries
    assert world.hub.owned_turns == 1


def test_a_takeover_gets_the_command_that_the_former_owner_has_not_answered(world: World) -> None:
    former = attached(world, TURN, name="rt-1", epoch=1)
    taker = attached(world, name="rt-2")
    world.submit(command(turn=TURN))
    world.ledger.commit()
    assert former.modes == [DeliveryMode.OWNED]
    world.hub.opened(taker, [OwnedTurn(SCOPE, TURN, 2)])
    assert taker.modes == [DeliveryMode.OWNED]

"""Whatever clients, runtimes, the ledger and crashes do: an accepted command has exactly one true outcome."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from support.control_fakes import SCOPE, FakeLink, FakeListener, FakeStore, World, command
from turnwire.control.domain import CommandKind, CommandRow, Delivery, Key, Outcome, OutcomeKind, OwnedTurn

TURNS = [f"threads/thr{t}/turns/turn-{u}" for t in "ab" for u in "12"]
IDS = [f"cmd-{n:05}" for n in range(6)]


class HubMachine(RuleBasedStateMachine):
    """Clients send, runtimes answer or die, the ledger commits or fails, time passes, control crashes."""

    links = Bundle("links")

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.store = FakeStore()
        self.listeners: list[FakeListener] = []
        self.follower = FakeListener(client_id="client")
        self.live: list[FakeLink] = []
        self.given: dict[FakeLink, list[tuple[int, Delivery, float]]] = {}
        self.seen: dict[Key, Outcome] = {}
        self.count = 0
        self.held = False
        self.born_before = 0
        self.world.hub.followers.add(self.follower, SCOPE, "client")

    # What clients do.

    @rule(
        command_id=st.sampled_from(IDS),
        place=st.sampled_from([*TURNS, "threads/thra", "threads/thrb"]),
        ttl=st.sampled_from([1.0, 5.0, 60.0]),
        clear_queue=st.booleans(),
        kind=st.sampled_from([CommandKind.CANCEL_TURN] * 4 + [CommandKind.INJECT_STEER]),
        as_client=st.booleans(),
    )
    def send(
        self, command_id: str, place: str, ttl: float, clear_queue: bool, kind: CommandKind, as_client: bool
    ) -> None:
        turn, thread = (place, "") if "/turns/" in place else ("", place)
        listener = FakeListener(client_id="client" if as_client else "")
        self.listeners.append(listener)
        sent = command(command_id, turn=turn, thread=thread, ttl=ttl, clear_queue=clear_queue, kind=kind)
        self.world.submit(sent, listener)
        self.settle()

    # What runtimes do.

    @rule(target=links, name=st.sampled_from(["rt-1", "rt-2"]), turns=st.sets(st.sampled_from(TURNS)))
    def attach(self, name: str, turns: set[str]) -> FakeLink:
        link = FakeLink(name)
        self.live = [other for other in self.live if other.runtime_id != name]
        self.live.append(link)
        self.count += 1
        self.world.hub.attach(link, [OwnedTurn(SCOPE, t, self.count) for t in sorted(turns)], complete=True)
        self.settle()
        return link

    @rule(link=consumes(links))
    def die(self, link: FakeLink) -> None:
        self.die_now(link)

    @rule(link=links, turn=st.sampled_from(TURNS))
    def open_turn(self, link: FakeLink, turn: str) -> None:
        if link in self.live:
            self.count += 1
            self.world.hub.opened(link, [OwnedTurn(SCOPE, turn, self.count)])
            self.settle()

    @rule(link=links, turn=st.sampled_from(TURNS))
    def close_turn(self, link: FakeLink, turn: str) -> None:
        if link in self.live:
            self.world.hub.closed(link, [OwnedTurn(SCOPE, turn, self.count)])

    @rule(link=links, full=st.booleans())
    def stall(self, link: FakeLink, full: bool) -> None:
        link.full = full

    @rule(link=links, ack=st.booleans(), heard=st.booleans())
    def act(self, link: FakeLink, ack: bool, heard: bool) -> None:
        """Treat the oldest delivery; a runtime whose stream has died still acts on what it has."""
        self._receive()
        waiting = self.given.get(link, [])
        if not waiting:
            return
        delivery_id, delivery, deadline = waiting.pop(0)
        row = delivery.row
        live = f"{row.target.thread}/turns/turn-1"
        if ack and link in self.live:
            self.world.hub.acked(link, delivery_id, "" if row.turn else live)
        outcome = self.store.act(delivery, deadline, self.world.clock.monotonic(), live)
        if not heard or link not in self.live:
            if link in self.live:
                self.die_now(link)
            return
        if outcome is None:
            self.world.hub.not_applied(link, row.key)
        else:
            self.world.hub.outcome(link, row.key, outcome)
        self.settle()

    def die_now(self, link: FakeLink) -> None:
        self._receive()
        self.live = [other for other in self.live if other is not link]
        self.world.hub.detach(link)
        self.settle()

    def settle(self) -> None:
        """Let the ledger keep up, unless it is being slow."""
        if not self.held:
            self.world.ledger.commit()
        self._receive()

    @rule(key=st.sampled_from(IDS))
    def repeat_old_outcome(self, key: str) -> None:
        """After a reconnect a runtime repeats what was not confirmed."""
        outcome = self.store.applied.get((SCOPE, key))
        if outcome is not None and self.live:
            self.world.hub.outcome(self.live[0], (SCOPE, key), outcome)

    # What the ledger, the clock and the process do.

    @rule(held=st.booleans())
    def hold_the_ledger(self, held: bool) -> None:
        self.held = held
        self.settle()

    @rule(count=st.integers(1, 3))
    def commit(self, count: int) -> None:
        self.world.ledger.commit(count)

    @rule()
    def fail_one(self) -> None:
        self.world.ledger.fail()

    @rule(seconds=st.sampled_from([0.1, 0.3, 2.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)
        self.settle()

    @rule()
    def crash(self) -> None:
        self._receive()
        self.live = []
        self.born_before = len(self.listeners)
        self.world.restart()
        self.world.hub.followers.add(self.follower, SCOPE, "client")

    # What always holds.

    @invariant()
    def outcomes_never_change(self) -> None:
        for key, row in self.world.ledger.rows.items():
            if row.outcome is not None:
                assert self.seen.setdefault(key, row.outcome) == row.outcome

    @invariant()
    def nobody_hears_what_is_not_durable(self) -> None:
        rows = self.world.ledger.rows
        for listener in [*self.listeners, self.follower]:
            for told in [*listener.ends, *(row for row in listener.changes if row.done)]:
                assert rows[told.key].outcome == told.outcome
            for told, _ in listener.accepted_rows:
                assert told.key in rows

    @invariant()
    def each_sending_has_at_most_one_answer(self) -> None:
        for listener in self.listeners:
            assert len(listener.accepted_rows) + len(listener.refusals) <= 1
            assert len(listener.ends) <= 1

    @invariant()
    def what_took_effect_is_never_told_as_something_else(self) -> None:
        for key, outcome in self.seen.items():
            if key in self.store.applied and outcome.kind is not OutcomeKind.DUPLICATE:
                assert outcome.kind is OutcomeKind.APPLIED, outcome

    def teardown(self) -> None:
        """Give everything a healthy end: then every row has its outcome and nothing is left in memory."""
        self.held = False
        link = self.attach("rt-9", set())
        for _ in range(12):
            self.world.ledger.commit()
            self._receive()
            for _ in range(len(self.given.get(link, []))):
                self.act(link, True, True)
            self.world.ledger.commit()
            self.world.pass_time(40.0)
            if not self.world.hub.pending:
                break
            for other in list(self.live):
                if other is not link:
                    self.die_now(other)
        assert self.world.hub.pending == 0
        rows: list[CommandRow] = list(self.world.ledger.rows.values())
        assert all(row.outcome is not None and row.body is None for row in rows)
        for listener in self.listeners[self.born_before :]:
            for row, _ in listener.accepted_rows:
                heard = [*listener.ends, *(change for change in self.follower.changes if change.done)]
                ends = listener.ends if not listener.follows(row) else heard
                assert row.key in {end.key for end in ends}, "accepted, and the end was never told"
        self.outcomes_never_change()
        self.what_took_effect_is_never_told_as_something_else()
        self.nobody_hears_what_is_not_durable()

    def _receive(self) -> None:
        for link in self.live:
            now = self.world.clock.monotonic()
            fresh = [(n, d, now + d.remaining_seconds) for n, d in link.deliveries]
            link.deliveries = []
            self.given.setdefault(link, []).extend(fresh)


HubMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestHubMachine = HubMachine.TestCase

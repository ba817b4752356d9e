"""One turn at the command line: ask for it, show it, let Ctrl-C stop it, answer what it asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from turnwire.cli.event_printer import EventPrinter, end_code
from turnwire.cli.exit_codes import ExitCode
from turnwire.cli.failures import explain
from turnwire.cli.interrupts import Interrupts
from turnwire.cli.json_lines import write_line
from turnwire.cli.screen import Screen
from turnwire_client import Client, TurnStream, TurnwireError
from turnwire_client.messages import Action, ActionKind, Part, Task, TurnEvent, TurnState

__all__ = ["Session", "default_agent"]

_PREFERRED = ("agents/assistant", "agents/demo")


def default_agent(client: Client) -> str:
    """Choose an agent when none is named: the assistant, else the demo, else the first there is."""
    names = [agent.name for agent in client.list_agents()]
    return next((name for name in _PREFERRED if name in names), names[0] if names else _PREFERRED[-1])


@dataclass
class Session:
    """What the turns of one invocation share.

    Attributes:
        thread: name of the thread; empty until the first turn has made one.
        as_json: print events as ProtoJSON lines instead of for people.
        confirm: asks a person whether an action may go on; None = the turn is left waiting.
        interrupted: whether Ctrl-C was pressed during the last turn.
    """

    client: Client
    screen: Screen
    agent: str = ""
    thread: str = ""
    as_json: bool = False
    show_reasoning: bool = True
    confirm: Callable[[Action], bool] | None = None
    interrupted: bool = False
    turn: str = field(default="", init=False)
    _answered: set[str] = field(default_factory=set, init=False)

    def run(
        self,
        text: str | None = None,
        parts: Sequence[Part] = (),
        task: Task | None = None,
        schema: str | None = None,
    ) -> ExitCode:
        """Run one turn and show it; of one with a schema, stdout gets the answer that fits and nothing else.

        Raises:
            TurnwireError: the server refused the turn or was lost for good.
        """
        stream = self.client.run_turn(
            agent=self.agent, text=text, parts=parts, task=task, schema=schema, thread=self.thread
        )
        return self._follow(stream, answer_alone=schema is not None)

    def watch(self, turn: str, after: int, follow: bool) -> ExitCode:
        """Show a turn that is there already.

        Raises:
            TurnwireError: the server refused or was lost for good.
        """
        return self._follow(
            self.client.watch(turn, after=after, follow_while_waiting=follow), stops_turn=False
        )

    def _follow(self, stream: TurnStream, stops_turn: bool = True, answer_alone: bool = False) -> ExitCode:
        printer = EventPrinter(self.screen, show_reasoning=self.show_reasoning, answer_alone=answer_alone)
        show: Callable[[TurnEvent], None] = printer.show
        if self.as_json:

            def show(event: TurnEvent) -> None:
                printer.view.apply(event)
                write_line(event)

        if not stops_turn:
            with stream:
                self._show(stream, show)
            return end_code(printer.view.state or stream.header.state)
        while True:
            if (code := self._interruptible(stream, show, printer)) is not None:
                return code
            if not self._answer(list(printer.view.actions.values())):
                return ExitCode.WAITING
            # The log hears of the answer when the turn goes on: until then it waits, and that is no end.
            stream = self.client.watch(
                stream.turn, after=printer.view.last_sequence, follow_while_waiting=True
            )

    def _interruptible(
        self, stream: TurnStream, show: Callable[[TurnEvent], None], printer: EventPrinter
    ) -> ExitCode | None:
        """Show a stream whose turn Ctrl-C cancels; None when the turn now waits for somebody."""
        if not self.as_json:
            self.screen.wait("connecting")
        try:
            with Interrupts(self.client, stream) as interrupts, stream:
                if stream.turn:
                    self.turn, self.thread = stream.turn, stream.header.thread
                    interrupts.turn_known()
                    self._show(stream, show)
        finally:
            self.screen.end()
        self.interrupted = interrupts.count > 0
        if interrupts.error is not None:
            self.screen.note(f"the turn could not be cancelled: {explain(interrupts.error)}", "red")
        if interrupts.count > 1 and not stream.finished:
            self.screen.note(f"detached; the turn may go on: turnwire watch {self.turn}", "yellow")
            return ExitCode.INTERRUPTED
        waits = printer.view.state == TurnState.TURN_STATE_WAITING
        return None if waits else end_code(printer.view.state or stream.header.state)

    def _show(self, stream: TurnStream, show: Callable[[TurnEvent], None]) -> None:
        for event in stream:
            show(event)
            # What waits for an answer that was given goes on by itself.
            if set(event.turn_suspended.actions) - self._answered:
                return

    def _answer(self, actions: list[Action]) -> bool:
        """Have a person decide what is open; False when something stays open."""
        for action in actions:
            if action.name in self._answered:
                continue
            if self.confirm is None or action.kind != ActionKind.ACTION_KIND_APPROVAL:
                self.screen.note(f"the turn waits for an answer to {action.name}", "cyan")
                return False
            try:
                self.client.decide(action, approve=self.confirm(action))
            except TurnwireError as error:
                self.screen.note(explain(error), "red")
                # Somebody else was quicker, or time was: the turn goes on with that.
                if error.reason != "ACTION_RESOLVED":
                    return False
            self._answered.add(action.name)
        return bool(actions)

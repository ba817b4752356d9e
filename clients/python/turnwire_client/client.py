"""The async client: one object per deployment, safe to share between tasks of one event loop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self

import grpc

from turnwire.api.common.v1.tool_pb2 import RangeUnit
from turnwire.api.control.v1.command_pb2 import CommandOutcome, CommandRecord
from turnwire.api.runtime.v1.action_pb2 import Action
from turnwire.api.runtime.v1.admin_service_pb2 import PruneEventsResponse
from turnwire.api.runtime.v1.agent_pb2 import Agent
from turnwire.api.runtime.v1.agent_service_pb2 import GetServerInfoResponse
from turnwire.api.runtime.v1.content_pb2 import Part, TextContent
from turnwire.api.runtime.v1.message_pb2 import Message
from turnwire.api.runtime.v1.thread_pb2 import Thread
from turnwire.api.runtime.v1.thread_service_pb2 import GetThreadResponse, WatchThreadRequest
from turnwire.api.runtime.v1.turn_pb2 import ModelOptions, Task, Turn, TurnSpec
from turnwire.api.runtime.v1.turn_service_pb2 import (
    ResolveActionRequest,
    StartTurnResponse,
    WatchTurnRequest,
)
from turnwire_client import operations
from turnwire_client.channels import AsyncChannels
from turnwire_client.connection import ConnectionOptions, Tls, Token
from turnwire_client.errors import from_rpc_error
from turnwire_client.inbox import follow_actions
from turnwire_client.policy import Patience
from turnwire_client.result import TurnResult
from turnwire_client.spec import (
    cancel_request,
    decision,
    run_turn_request,
    steer_request,
    thread_name,
    turn_spec,
)
from turnwire_client.stream import AsyncTurnStream
from turnwire_client.thread_stream import AsyncThreadStream
from turnwire_client.view import TurnView
from turnwire_client.waiting import is_settled, next_wait

__all__ = ["AsyncClient"]


class AsyncClient:
    """Runs turns, follows them and stops them.

    Args:
        target: address of the runtime, `host:port` or any gRPC name such as `dns:///runtime:50051`.
        control_target: address of the control service; None = the runtime is asked.
        token: bearer token, or a function that gives the current one.
        tls: certificates; None = plaintext.
        scope: which scope is meant, for credentials that hold several.
        insecure: lets a token travel in clear to another machine.
        patience: time limits for connecting and resuming.

    Every method raises a class of `turnwire_client.errors`. Names may be short: `demo` for `agents/demo`.
    """

    def __init__(
        self,
        target: str = "127.0.0.1:50051",
        *,
        control_target: str | None = None,
        token: Token | None = None,
        tls: Tls | None = None,
        scope: str = "",
        insecure: bool = False,
        patience: Patience | None = None,
    ) -> None:
        options = ConnectionOptions(target, token=token, tls=tls, scope=scope, insecure=insecure)
        self._channels = AsyncChannels(options, control_target or "", patience or Patience())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all calls and close the channels."""
        await self._channels.close()

    def run_turn(
        self,
        *,
        spec: TurnSpec | None = None,
        request_id: str | None = None,
        after: int = 0,
        follow_while_waiting: bool = False,
        cancel_on_disconnect: float | None = None,
        timeout: float | None = None,
        **work: Any,
    ) -> AsyncTurnStream:
        """Start a turn, or join the one with this `request_id`, and stream its events.

        Args:
            spec: the whole specification; None = made from `work`, see `turnwire_client.spec.turn_spec`
                (agent, text, parts, task, thread, limits, ...).
            after: last sequence that the caller has.
            follow_while_waiting: go on while the turn waits for somebody.
            cancel_on_disconnect: seconds without any reader after which the turn is cancelled; None = never.
            timeout: seconds that the reader may take; the turn has its own limits.
        """
        request = run_turn_request(
            spec or turn_spec(**work),
            request_id=request_id,
            after=after,
            follow_while_waiting=follow_while_waiting,
            cancel_on_disconnect=cancel_on_disconnect,
        )
        return self._channels.follow(request, timeout)

    def watch(
        self,
        turn: str,
        *,
        after: int = 0,
        log_id: str = "",
        follow_while_waiting: bool = False,
        timeout: float | None = None,
    ) -> AsyncTurnStream:
        """Stream the events of a turn, running or ended, after a sequence."""
        request = WatchTurnRequest(
            turn=turn, after_sequence=after, log_id=log_id, follow_while_waiting=follow_while_waiting
        )
        return self._channels.follow(request, timeout)

    async def run(
        self, agent: str = "", text: str | None = None, *, task: Task | str | None = None, **options: Any
    ) -> TurnResult:
        """Run one turn to its end, or until it waits for somebody.

        Args:
            options: as for `run_turn`.
        """
        view = TurnView()
        async with self.run_turn(agent=agent, text=text, task=task, **options) as stream:
            async for event in stream:
                view.apply(event)
            return TurnResult.from_view(view, stream.turn, stream.header.thread)

    async def start_turn(
        self,
        *,
        spec: TurnSpec | None = None,
        request_id: str | None = None,
        not_before: float | None = None,
        **work: Any,
    ) -> StartTurnResponse:
        """Admit a turn and return at once; `not_before` is in seconds since the epoch."""
        return await self._channels.unary(
            operations.start_turn(spec or turn_spec(**work), request_id, not_before)
        )

    async def get_turn(self, turn: str, *, wait: float = 0.0, full: bool = False) -> Turn:
        """Read a turn; with `wait`, within that many seconds, when it has ended or waits for somebody."""
        ends = time.monotonic() + wait
        while True:
            answer = await self._channels.unary(operations.get_turn(turn, next_wait(ends), full))
            if is_settled(answer.turn) or time.monotonic() >= ends:
                return answer.turn

    async def continue_turn(self, turn: str, *, steps: int = 0, request_id: str | None = None) -> Turn:
        """Let a turn that ran out of steps go on; 0 steps = as many as before."""
        return (await self._channels.unary(operations.continue_turn(turn, steps, request_id))).turn

    async def cancel(
        self,
        turn: str,
        *,
        cause: str = "",
        clear_queue: bool = False,
        wait: float = 30.0,
        command_id: str | None = None,
    ) -> CommandOutcome | None:
        """Stop a turn, or whatever is live on a thread, and give the command's outcome.

        Args:
            cause: why; shown in the turn's events.
            clear_queue: cancel the turns that wait in the thread's queue, too.
            wait: seconds to wait for the outcome; None is returned when there is none by then.
            command_id: idempotency key; None = a new command.
        """
        request = cancel_request(turn, cause=cause, clear_queue=clear_queue, wait=wait, command_id=command_id)
        command = (await self._channels.unary(operations.send_command(request))).command
        return command.outcome if command.HasField("outcome") else None

    async def steer(
        self, turn: str, text: str, *, wait: float = 30.0, command_id: str | None = None
    ) -> CommandOutcome | None:
        """Add a user message to a running turn and give the outcome, None when not known in time."""
        request = steer_request(turn, text, wait=wait, command_id=command_id)
        command = (await self._channels.unary(operations.send_command(request))).command
        return command.outcome if command.HasField("outcome") else None

    async def resolve_action(self, request: ResolveActionRequest) -> Action:
        """Answer an action; a request id is minted when the request has none."""
        return (await self._channels.unary(operations.resolve_action(request))).action

    async def decide(
        self, action: Action, *, approve: bool, comment: str = "", request_id: str | None = None
    ) -> Action:
        """Approve or reject an action as it was shown; the model reads the `comment` of a rejection."""
        return await self.resolve_action(decision(action, approve, comment, request_id))

    async def read_tool_result(
        self,
        turn: str,
        call_id: str,
        *,
        offset: int = 0,
        length: int = 0,
        unit: RangeUnit = RangeUnit.RANGE_UNIT_BYTES,
    ) -> AsyncIterator[bytes]:
        """Stream the bytes of a tool's stored result, or `length` units of it from `offset` on."""
        call = self._channels.read_result(operations.read_tool_result(turn, call_id, offset, length, unit))
        try:
            async for chunk in call:
                yield chunk.data
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        finally:
            call.cancel()

    async def server_info(self) -> GetServerInfoResponse:
        """Ask for version, limits and capabilities."""
        return await self._channels.unary(operations.server_info())

    async def get_agent(self, agent: str) -> Agent:
        """Read an agent with its tools."""
        return (await self._channels.unary(operations.get_agent(agent))).agent

    async def list_agents(self, *, page_size: int = 0) -> AsyncIterator[Agent]:
        """Give all agents, ordered by name, page by page; 0 = the server's page size."""
        async for page in self._channels.pages(operations.list_agents(page_size)):
            for agent in page.agents:
                yield agent

    async def prune_events(
        self, older_than: float | None = None, *, dry_run: bool = False
    ) -> PruneEventsResponse:
        """Delete the events of turns that ended so many seconds ago; None = the server's retention.

        Works within the caller's scope and needs the role operator. `dry_run` counts and deletes nothing.
        """
        return await self._channels.unary(operations.prune_events(older_than, dry_run))

    async def create_thread(
        self, thread: Thread | None = None, *, thread_id: str = "", request_id: str | None = None
    ) -> Thread:
        """Make a thread; an empty id is minted."""
        operation = operations.create_thread(thread or Thread(), thread_id, request_id)
        return (await self._channels.unary(operation)).thread

    async def get_thread(self, thread: str, *, message_count: int = 0) -> GetThreadResponse:
        """Read a thread with its latest messages, its live turn and its queue, all of one moment."""
        return await self._channels.unary(operations.get_thread(thread, message_count))

    def watch_thread(self, thread: str, *, after: int = 0, timeout: float | None = None) -> AsyncThreadStream:
        """Stream the changes of a thread above a version, such as that of `get_thread`, until it is deleted.

        Args:
            after: last version that the caller has; 0 = none.
            timeout: seconds that the stream may take.
        """
        request = WatchThreadRequest(thread=thread_name(thread), after_version=after)
        return self._channels.watch_thread(request, timeout)

    async def update_thread(
        self, thread: Thread, *fields: str, expected_version: int | None = None
    ) -> Thread:
        """Change fields of a thread: `title`, `metadata`, `labels`, `permission_mode`.

        Args:
            thread: its name and the new values.
            expected_version: the version that the caller has seen; None = any.
        """
        operation = operations.update_thread(thread, fields, expected_version)
        return (await self._channels.unary(operation)).thread

    async def list_queued_turns(self, thread: str, *, page_size: int = 0) -> AsyncIterator[Turn]:
        """Give the turns that wait in a thread, first the next one."""
        async for page in self._channels.pages(operations.list_queued_turns(thread, page_size)):
            for turn in page.turns:
                yield turn

    async def update_queued_turn(
        self, turn: Turn, text: str | None = None, *, parts: Sequence[Part] = ()
    ) -> Turn:
        """Give a turn that waits, as it was read, another input: a text, parts, or both."""
        said = [*([Part(text=TextContent(text=text))] if text is not None else []), *parts]
        return (await self._channels.unary(operations.update_queued_turn(turn.name, turn.etag, said))).turn

    async def delete_thread(self, thread: str, *, expected_version: int | None = None) -> None:
        """Delete a thread and what is in it, for ever; a turn that runs in it is cancelled."""
        await self._channels.unary(operations.delete_thread(thread, expected_version))

    async def fork_thread(
        self, thread: str, message: str = "", *, thread_id: str = "", request_id: str | None = None
    ) -> Thread:
        """Copy a thread, up to a message (its name) or whole, into a new one."""
        operation = operations.fork_thread(thread, message, thread_id, request_id)
        return (await self._channels.unary(operation)).thread

    async def regenerate_turn(
        self,
        thread: str,
        message: str = "",
        *,
        expected_version: int,
        options: ModelOptions | None = None,
        request_id: str | None = None,
    ) -> Turn:
        """Have an answer (its name, empty = the latest) made anew; it and all after it leave the view."""
        operation = operations.regenerate_turn(thread, expected_version, message, options, request_id)
        return (await self._channels.unary(operation)).turn

    async def retry_turn(self, turn: str, *, expected_version: int, request_id: str | None = None) -> Turn:
        """Try a failed or cancelled turn again."""
        operation = operations.retry_turn(turn, expected_version, request_id)
        return (await self._channels.unary(operation)).turn

    async def set_message_visibility(
        self, thread: str, *messages: str, hidden: bool, expected_version: int
    ) -> Thread:
        """Hide messages (their names) from readers and the model, or show them again."""
        operation = operations.set_message_visibility(thread, expected_version, messages, hidden)
        return (await self._channels.unary(operation)).thread

    async def list_threads(self, *, query: str = "", page_size: int = 0) -> AsyncIterator[Thread]:
        """Give the threads that a filter such as `agent=agents/demo` lets through, latest changed first."""
        async for page in self._channels.pages(operations.list_threads(query, page_size)):
            for thread in page.threads:
                yield thread

    async def list_messages(
        self, thread: str, *, include_hidden: bool = False, page_size: int = 0
    ) -> AsyncIterator[Message]:
        """Give a thread's messages."""
        async for page in self._channels.pages(operations.list_messages(thread, include_hidden, page_size)):
            for message in page.messages:
                yield message

    async def list_turns(
        self, thread: str = "-", *, query: str = "", page_size: int = 0
    ) -> AsyncIterator[Turn]:
        """Give the turns of a thread, or of all, newest first."""
        async for page in self._channels.pages(operations.list_turns(thread, query, page_size)):
            for turn in page.turns:
                yield turn

    async def list_actions(
        self, parent: str = "-", *, query: str = "", page_size: int = 0
    ) -> AsyncIterator[Action]:
        """Give the actions of a turn or thread, or of all, oldest first."""
        async for page in self._channels.pages(operations.list_actions(parent, query, page_size)):
            for action in page.actions:
                yield action

    async def get_action(self, name: str) -> Action:
        """Read an action."""
        return (await self._channels.unary(operations.get_action(name))).action

    def watch_actions(self, parent: str = "-", *, query: str = "") -> AsyncIterator[Action]:
        """Give the open actions of a turn or thread, or of all, then each that changes, as it is now.

        Ends only with an error: leave the loop, and close the iterator, when enough was seen.
        """
        request = operations.watch_actions(parent, query)
        policy = self._channels.policy(None)
        return follow_actions(lambda: self._channels.watch_actions(request), self.get_action, policy)

    async def list_commands(self, *, query: str = "", page_size: int = 0) -> AsyncIterator[CommandRecord]:
        """Give the rows of the command ledger, newest first."""
        async for page in self._channels.pages(operations.list_commands(query, page_size)):
            for command in page.commands:
                yield command

"""Executions from the request to the one end: losing a reader stops nothing, a stop or the limit does."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from turnwire.core.clock import Clock
from turnwire.core.errors import NotFound, Unavailable
from turnwire.executor.admission import check_fence, check_same_call, check_start, digest_arguments
from turnwire.executor.bodies import Body, Seat
from turnwire.executor.catalog import Catalog
from turnwire.executor.domain import (
    Call,
    ExecuteCommand,
    ExecutionKey,
    ExecutionState,
    Outcome,
    Result,
    Started,
    Suspension,
)
from turnwire.executor.ledger import Ledger
from turnwire.executor.limits import MIN_RESULT_CHARS, clip
from turnwire.executor.run import Run
from turnwire.executor.settling import Keeper, settle
from turnwire.executor.supervisor import Supervisor
from turnwire.executor.workers.pool import WorkerStartFailed
from turnwire.storage.units import Statement, StorageError

__all__ = ["Ended", "RunLimits", "Runs"]

logger = logging.getLogger(__name__)

# A wait shorter than this leaves no ACCEPTED row: the start follows at once.
_QUIET_QUEUE_SECONDS = 0.05
_PURGE_WAIT_SECONDS = 10.0
# A harmless built-in tool that ends within this time has its start and its end in one commit.
_QUICK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Defaults and ceilings. Times are seconds."""

    default_timeout: float = 540.0
    max_timeout: float = 3_600.0
    queue_timeout: float = 60.0
    max_queued: int = 256
    max_result_chars: int = 50_000


@dataclass(frozen=True, slots=True)
class Ended:
    """A repeat of a key that has its end already."""

    end: Result | Suspension
    started: Started | None


class Runs:
    """Supervises every execution of this process."""

    def __init__(
        self, catalog: Catalog, ledger: Ledger, keeper: Keeper, clock: Clock, limits: RunLimits
    ) -> None:
        self._catalog = catalog
        self._ledger = ledger
        self._keeper = keeper
        self._clock = clock
        self._limits = limits
        self._live: dict[ExecutionKey, Run] = {}
        self._admitting: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._tasks = Supervisor()
        self._queued = 0
        self._draining = False

    @property
    def live_count(self) -> int:
        """Executions that have no end yet."""
        return len(self._live)

    async def execute(self, command: ExecuteCommand) -> tuple[Run, bool] | Ended:
        """Start an execution, join it, or find its end; the flag says joined.

        Raises:
            NotFound: TOOL_NOT_FOUND.
            WrongState: EXECUTION_EXISTS or EPOCH_STALE.
            Unavailable: OVERLOADED when the queue is full, DRAINING when the service leaves.
        """
        sha256 = digest_arguments(command.arguments_json)
        call = (command.key.scope, command.key.execution_id)
        while True:
            run = self._live.get(command.key)
            if run is not None:
                check_same_call(command, run.command.tool_name, sha256, run.arguments_sha256)
                if command.epoch > run.command.epoch:
                    self._ledger.raise_epoch(command)
                return run, True
            if call not in self._admitting:
                break
            await asyncio.wait((self._admitting[call],))
        admitted = asyncio.get_running_loop().create_future()
        self._admitting[call] = admitted
        try:
            return await self._admit(command, sha256)
        finally:
            del self._admitting[call]
            admitted.set_result(None)

    async def cancel(self, scope: str, execution_id: str, epoch: int, cause: str) -> ExecutionState:
        """Ask the live attempt to stop; gives what it was doing. Repeats and late requests change nothing.

        Raises:
            NotFound: EXECUTION_NOT_FOUND.
            WrongState: EPOCH_STALE.
        """
        snapshot = await self._ledger.snapshot(scope, execution_id)
        run = self.find_live(scope, execution_id, 0)
        latest = snapshot.attempt(0)
        if run is None and latest is None:
            raise NotFound(
                "there is no such execution", reason="EXECUTION_NOT_FOUND", execution_id=execution_id
            )
        check_fence(epoch, max(snapshot.epoch, run.command.epoch if run is not None else 0))
        if run is not None:
            state = run.state
            run.stop.set(clip(cause, 500) or "cancelled")
            return state
        return latest.state if latest is not None else ExecutionState.NOT_FOUND

    def find_live(self, scope: str, execution_id: str, attempt: int) -> Run | None:
        """Find a live run; attempt 0 means the latest."""
        runs = [
            run
            for key, run in self._live.items()
            if (key.scope, key.execution_id) == (scope, execution_id) and attempt in (0, key.attempt)
        ]
        return max(runs, key=lambda run: run.command.key.attempt, default=None)

    async def stop_thread(self, scope: str, thread: str) -> None:
        """Stop what runs for a thread that is being removed, and wait until it has ended."""
        wanted = (scope, thread)
        await self._stop([run for key, run in self._live.items() if (key.scope, key.thread) == wanted])

    async def refuse(self) -> None:
        """Take no new executions; repeats still join."""
        self._draining = True

    async def finish(self, patience: float) -> None:
        """Wait `patience` seconds for what runs to end by itself, then stop the rest and wait for its end."""
        try:
            async with asyncio.timeout(patience):
                await self._tasks.wait()
        except TimeoutError:
            await self._stop(list(self._live.values()))

    async def close(self) -> None:
        """Stop what still runs, and wait for its end to be stored."""
        self._draining = True
        await self._stop(list(self._live.values()))
        await self._tasks.close()

    async def _stop(self, runs: list[Run]) -> None:
        for run in runs:
            run.stop.set("the executor stops")
        ended = [asyncio.Event() for _ in runs]
        for run, event in zip(runs, ended, strict=True):
            run.add_reader(event)
        try:
            async with asyncio.timeout(_PURGE_WAIT_SECONDS):
                for run, event in zip(runs, ended, strict=True):
                    while not run.settled:
                        event.clear()
                        await event.wait()
        except TimeoutError:
            logger.warning("executor.stop.slow", extra={"runs": sum(not run.settled for run in runs)})

    async def _admit(self, command: ExecuteCommand, sha256: str) -> tuple[Run, bool] | Ended:
        body = self._catalog.body(command.tool_name)
        snapshot = await self._ledger.snapshot(command.key.scope, command.key.execution_id)
        record = snapshot.attempt(command.key.attempt)
        if record is not None:
            check_same_call(command, record.tool_name, sha256, record.arguments_sha256)
            if record.end is not None:
                started = Started(record.start_time, record.execution_timeout) if record.start_time else None
                return Ended(record.end, started)
            if record.state is ExecutionState.STARTED:
                # Started here, and its end was refused by the store: it will never be known.
                return Ended(Result(Outcome.OUTCOME_UNKNOWN, is_error=True), None)
            check_fence(command.epoch, snapshot.epoch)
        else:
            check_start(command, snapshot)
        if self._draining:
            raise Unavailable("this executor is leaving", reason="DRAINING", retry_after=1.0)
        if self._queued >= self._limits.max_queued:
            raise Unavailable("too many calls wait for room", reason="OVERLOADED", retry_after=1.0)
        run = Run(command, sha256, self._clock.monotonic)
        run.queue_position = self._queued
        self._live[command.key] = run
        self._tasks.start(self._live_through(run, body))
        return run, False

    async def _live_through(self, run: Run, body: Body) -> None:
        try:
            await self._carry_out(run, body)
        except Exception as error:
            await self._give_up(run, error)
        finally:
            if not run.settled:
                run.fail(Unavailable("this executor is leaving", reason="DRAINING", retry_after=1.0))
            del self._live[run.command.key]

    async def _give_up(self, run: Run, error: Exception) -> None:
        """End a run that met a defect: its end is unknown, unless the ledger itself is the trouble."""
        key = run.command.key
        logger.error("executor.run.failed", exc_info=error, extra={"execution": key.execution_id})
        if run.started is None or isinstance(error, Unavailable | StorageError):
            # Readers learn that the truth stands in the ledger, where LookupExecution finds it.
            run.fail(error)
            return
        end = Result(Outcome.OUTCOME_UNKNOWN, is_error=True)
        try:
            await self._ledger.finish(key, ExecutionState.LOST, end)
        except (Unavailable, StorageError) as trouble:
            run.fail(trouble)
            return
        self._settle(run, end)

    async def _carry_out(self, run: Run, body: Body) -> None:
        seat = await self._take_seat(run, body)
        if isinstance(seat, Result):
            await self._settle_unstarted(run, seat)
            return
        try:
            if run.stop.cause:
                await self._settle_unstarted(run, _not_started("it was stopped"))
            else:
                await self._perform(run, body, seat)
        finally:
            seat.release()

    async def _settle_unstarted(self, run: Run, result: Result) -> None:
        await self._ledger.finish_unstarted(run.command, run.arguments_sha256, result)
        self._settle(run, result)

    async def _take_seat(self, run: Run, body: Body) -> Seat | Result:
        """Wait for room until the queue timeout or a stop; a Result says why there was none."""
        seat = body.try_reserve()
        if seat is not None:
            return seat
        limit = run.command.queue_timeout
        limit = self._limits.queue_timeout if limit is None else limit
        task = self._tasks.start(body.reserve())
        self._queued += 1
        try:
            await asyncio.wait((task,), timeout=min(limit, _QUIET_QUEUE_SECONDS))
            if not task.done() and limit > _QUIET_QUEUE_SECONDS:
                self._ledger.accept(run.command, run.arguments_sha256, body.spec.repeatable)
                waits: set[asyncio.Future[object]] = {task, run.stop.future}  # type: ignore[arg-type]
                await asyncio.wait(
                    waits, timeout=limit - _QUIET_QUEUE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            self._queued -= 1
            if not task.done():
                task.cancel()
        await asyncio.wait((task,))
        if task.cancelled():
            why = "it was stopped" if run.stop.cause else f"there was no room for {limit:g} s"
            return _not_started(why)
        error = task.exception()
        if isinstance(error, WorkerStartFailed):
            return _not_started(str(error))
        return task.result()

    async def _perform(self, run: Run, body: Body, seat: Seat) -> None:
        command = run.command
        timeout = self._timeout(command, body)
        call = Call(
            key=command.key,
            arguments_json=command.arguments_json,
            context=command.context,
            timeout=timeout,
            max_result_chars=self._result_chars(command),
            report=run.gate.add,
            resume=command.resume,
        )
        begin = _Begin(run, Started(self._clock.now(), timeout), body.spec.repeatable, self._ledger)
        began = self._clock.monotonic()
        if body.inline and body.spec.repeatable:
            # Nothing is lost if it runs again, so a quick one pays for one commit, not two.
            begin.write_later(self._tasks)
        else:
            await begin.write()
        ending = await seat.run(call, run.stop)
        elapsed = self._clock.monotonic() - began
        end: Result | Suspension
        if ending.suspension is not None:
            end, state = ending.suspension, ExecutionState.SUSPENDED
        else:
            end = await settle(call, ending, elapsed, self._keeper)
            state = ExecutionState.LOST if ending.lost else ExecutionState.FINISHED
        await self._ledger.finish(command.key, state, end, await begin.unwritten())
        begin.written()
        self._settle(run, end, elapsed)

    def _settle(self, run: Run, end: Result | Suspension, elapsed: float = 0.0) -> None:
        if not run.settle(end):
            logger.warning("executor.end.dropped", extra={"execution": run.command.key.execution_id})
            return
        outcome = "suspended" if isinstance(end, Suspension) else end.outcome.value
        logger.info(
            "tool.finished",
            extra={
                "tool": run.command.tool_name,
                "execution": run.command.key.execution_id,
                "attempt": run.command.key.attempt,
                "outcome": outcome,
                "duration_ms": round(elapsed * 1_000, 3),
            },
        )

    def _timeout(self, command: ExecuteCommand, body: Body) -> float:
        own = body.spec.timeout
        limits = [own.total_seconds() if own is not None else self._limits.default_timeout]
        if command.execution_timeout is not None:
            limits.append(command.execution_timeout)
        return min(*limits, self._limits.max_timeout)

    def _result_chars(self, command: ExecuteCommand) -> int:
        wanted = command.max_result_chars or self._limits.max_result_chars
        return max(MIN_RESULT_CHARS, min(wanted, self._limits.max_result_chars))


class _Begin:
    """The start of one run: written ahead of the body, or together with the end."""

    def __init__(self, run: Run, started: Started, repeatable: bool, ledger: Ledger) -> None:
        self._run = run
        self._started = started
        self._ledger = ledger
        self._statements = ledger.start_statements(run.command, run.arguments_sha256, repeatable, started)
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    async def write(self) -> None:
        """Make the start durable and tell the readers."""
        await self._ledger.start(self._run.command.key, self._statements)
        self.written()

    def write_later(self, tasks: Supervisor) -> None:
        """Make it durable by itself if the end does not come soon."""

        def due() -> None:
            self._writing = tasks.start(self.write())

        self._timer = asyncio.get_running_loop().call_later(_QUICK_SECONDS, due)

    async def unwritten(self) -> list[Statement]:
        """Give what the end still has to bring along."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await self._writing
        return [] if self._run.started is not None else self._statements

    def written(self) -> None:
        """Tell the readers, once."""
        if self._run.started is None:
            self._run.start(self._started)


def _not_started(why: str) -> Result:
    return Result(Outcome.NOT_STARTED, clip(f"The call never started: {why}.", 2_000), is_error=True)

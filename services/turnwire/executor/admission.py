"""Which request starts an execution, which joins one, and which is refused."""

from __future__ import annotations

import hashlib

from turnwire.core.errors import FieldViolation, InvalidRequest, WrongState
from turnwire.executor.domain import ExecuteCommand, ExecutionRecord, ExecutionState
from turnwire.executor.ledger import Snapshot

__all__ = ["check_fence", "check_same_call", "check_start", "digest_arguments"]


def digest_arguments(arguments_json: str) -> str:
    """Give the SHA-256 of the arguments as they came, in hex."""
    return hashlib.sha256(arguments_json.encode()).hexdigest()


def check_same_call(command: ExecuteCommand, tool_name: str, sha256: str, known_sha256: str) -> None:
    """Refuse a key that stands for another call. Raises WrongState / EXECUTION_EXISTS."""
    if tool_name != command.tool_name or sha256 != known_sha256:
        raise _exists(command, "this key was used for another tool or other arguments")


def check_fence(epoch: int, highest: int) -> None:
    """Refuse an owner that has been replaced. Raises WrongState / EPOCH_STALE."""
    if epoch < highest:
        raise WrongState(
            f"epoch {epoch} is below {highest}: another owner has taken the turn over",
            reason="EPOCH_STALE",
            epoch=str(epoch),
            highest_epoch=str(highest),
        )


def check_start(command: ExecuteCommand, snapshot: Snapshot) -> None:
    """Decide whether a key without a row may start.

    Attempt 1 needs an untouched call; attempt n + 1 needs n to be the latest and either suspended, with the
    answer at hand, or lost and repeatable.

    Raises:
        WrongState: EXECUTION_EXISTS or EPOCH_STALE.
        InvalidRequest: the first attempt came with an answer.
    """
    check_fence(command.epoch, snapshot.epoch)
    latest = snapshot.attempt(0)
    attempt = command.key.attempt
    if latest is None:
        if attempt != 1:
            raise _exists(command, "there is no earlier attempt of this call")
        if command.resume is not None:
            what = "needs a suspended attempt before it"
            raise InvalidRequest(f"resume {what}", violations=(FieldViolation("resume", what),))
        return
    if latest.key.attempt != attempt - 1:
        raise _exists(command, f"attempt {latest.key.attempt} is the latest of this call")
    _check_successor(command, latest)


def _check_successor(command: ExecuteCommand, latest: ExecutionRecord) -> None:
    if latest.state is ExecutionState.SUSPENDED:
        if command.resume is None:
            raise _exists(command, "the call is suspended: a further attempt needs its answer in resume")
        return
    if latest.state is ExecutionState.LOST and latest.repeatable:
        return
    raise _exists(command, f"the attempt before is {latest.state.value} and may not be followed by another")


def _exists(command: ExecuteCommand, why: str) -> WrongState:
    key = command.key
    return WrongState(
        f"{key.execution_id} attempt {key.attempt} may not start: {why}",
        reason="EXECUTION_EXISTS",
        execution_id=key.execution_id,
        attempt=str(key.attempt),
    )

"""What an agent says about its model calls, in place of what the deployment says."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["CallTerms"]

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class CallTerms(BaseModel):
    """Time limits in seconds and repeats of a model call; None = as the deployment says.

    `attempts` counts all tries; `retry_visible` is whether a call is also repeated when readers have seen a
    part of the answer, which is then voided for them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    first_feedback_seconds: Seconds | None = None
    first_chunk_seconds: Seconds | None = None
    between_chunks_seconds: Seconds | None = None
    whole_call_seconds: Seconds | None = None
    attempts: int | None = Field(default=None, ge=1, le=10)
    retry_visible: bool | None = None

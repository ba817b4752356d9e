"""Where the chart is and what rendering it gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

CHART = Path(__file__).resolve().parents[2] / "helm" / "turnwire"
KUBERNETES = "1.27.0"

Documents = dict[tuple[str, str], dict[str, Any]]
Render = Callable[..., Documents]


class RefusedError(Exception):
    """The chart refused the values; the text is helm's."""

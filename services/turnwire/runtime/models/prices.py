"""The price table of a deployment, read from the file that its settings name."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from turnwire.core.errors import WrongState
from turnwire.runtime.domain.prices import PriceTable

__all__ = ["load_prices"]


def load_prices(file: Path | None) -> PriceTable:
    """Read a YAML or JSON file of prices; no file is a table without prices.

    Raises:
        WrongState: PRICES_FILE_INVALID, naming file and field.
    """
    import yaml

    if file is None:
        return PriceTable()
    try:
        data = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _invalid(f"{file}: {error}") from error
    if not isinstance(data, dict):
        raise _invalid(f"{file}: a price file is one mapping with the key `models`")
    try:
        return PriceTable.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "file"
        raise _invalid(f"{file}: {place}: {first['msg']}") from error


def _invalid(text: str) -> WrongState:
    return WrongState(text, reason="PRICES_FILE_INVALID")

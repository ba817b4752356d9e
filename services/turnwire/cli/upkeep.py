"""Upkeep of stores: what `turnwire admin` and `turnwire migrate` do.

A store that a runtime has open is worked on through it, all others directly.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from turnwire.cli.connect import Connection, Leave, say_error
from turnwire.cli.exit_codes import ExitCode
from turnwire.cli.failures import UsageProblem
from turnwire.cli.stores import ClosedStore, OpenStore, file_store, url_store
from turnwire.core.errors import TurnwireError
from turnwire.runtime.store.pruning import RECLAIM_PAGES, Pruned, count_pages, forget_keys, prune_pages
from turnwire.storage.migrate import renew_log_id
from turnwire.wire.status import code_of

__all__ = ["age", "migrate", "prune", "renew"]

SERVICES = ("runtime", "control", "executor")
DEFAULT_AGE = "7d"
_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def age(text: str) -> float:
    """Return seconds for `7d`, `36h`, `90m`, `2w` or a number of seconds. Raises UsageProblem."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise UsageProblem(f"{text!r} is no age: write 7d, 36h, 90m, 2w or a number of seconds")
    return float(match[1]) * _UNITS[match[2]]


def prune(
    connection: Connection, data: Path, url: str, *, older_than: str, dry_run: bool, as_json: bool
) -> ExitCode:
    """Delete the events of turns that ended long ago, or count them."""
    seconds = age(older_than)
    with _told():
        path = data / "runtime.db"
        if url:
            done, where = _prune_directly(url_store(url), seconds, dry_run), "the PostgreSQL store"
        elif not path.exists():
            done, where = _prune_remotely(connection, seconds, dry_run), connection.target
        else:
            try:
                done, where = _prune_directly(file_store(data), seconds, dry_run), str(path)
            except TurnwireError as error:
                if error.reason != "STORE_LOCKED":
                    raise
                done, where = _prune_remotely(connection, seconds, dry_run), connection.target
    if as_json:
        fields = {"turns": done.turns, "pages": done.pages, "bytes": done.bytes, "dryRun": dry_run}
        sys.stdout.write(json.dumps(fields) + "\n")
    else:
        verb = "would delete" if dry_run else "deleted"
        sys.stdout.write(
            f"{where}: {verb} {done.pages} pages ({done.bytes} bytes) of {done.turns} turns that ended more "
            f"than {older_than} ago\n"
        )
    return ExitCode.OK


def renew(data: Path, url: str) -> ExitCode:
    """Give a restored store a new identity, so that cursors into what was lost are refused."""
    with _told(), _chosen(data, url).open() as store:
        _require_current(store)
        store.refuse_living_owners()
        log_id = store.run(renew_log_id)
        sys.stdout.write(f"{store.name}: the log is {log_id} now\n")
    return ExitCode.OK


def migrate(data: Path, url: str, *, check: bool) -> ExitCode:
    """Bring stores to this version's schema, or say what they have."""
    with _told():
        stores = [url_store(url)] if url else [file_store(data, service) for service in SERVICES]
        present = [store for store in stores if store.path is None or store.path.exists()]
        if not present:
            raise UsageProblem(f"there is no store in {data}: name its folder with --data")
        if check:
            return _check(present)
        for closed in present:
            with closed.open() as store:
                found = store.version()
                if found != store.known and url:
                    store.refuse_living_owners()
                store.migrate()
                text = f"is at schema {found}" if found == store.known else f"schema {found} -> {store.known}"
                sys.stdout.write(f"{store.name}: {text}\n")
    return ExitCode.OK


def _check(stores: list[ClosedStore]) -> ExitCode:
    code = ExitCode.OK
    for store in stores:
        found, known = store.versions()
        if found > known:
            text = "newer than this program: use the version that wrote it, or a later one"
        else:
            text = "up to date" if found == known else "behind: run `turnwire migrate`"
        sys.stdout.write(f"{store.name}: schema {found}, this version {known}: {text}\n")
        if found != known:
            code = ExitCode.CHECK_FAILED
    return code


def _chosen(data: Path, url: str) -> ClosedStore:
    if url:
        return url_store(url)
    store = file_store(data)
    if store.path is None or not store.path.exists():
        raise UsageProblem(f"there is no {store.name}: name its folder with --data")
    return store


def _require_current(store: OpenStore) -> None:
    """Raise UsageProblem when the store is older than this program, WrongState (SCHEMA_NEWER) when newer."""
    found = store.version()
    if found > store.known:
        store.migrate()  # says so, and how to go on
    if found < store.known:
        raise UsageProblem(
            f"{store.name} has schema {found}, this program needs {store.known}: run `turnwire migrate` first"
        )


def _prune_remotely(connection: Connection, seconds: float, dry_run: bool) -> Pruned:
    with connection.open() as client:
        done = client.prune_events(seconds, dry_run=dry_run)
    return Pruned(done.turns, done.pages, done.bytes)


def _prune_directly(closed: ClosedStore, seconds: float, dry_run: bool) -> Pruned:
    with closed.open() as store:
        _require_current(store)
        before = store.run(lambda db: db.now_ns()) - round(seconds * 1e9)
        if dry_run:
            return _count(store, before)
        total = Pruned()
        while chunk := store.run(partial(prune_pages, ended_before=before)):
            total += chunk
        while store.run(forget_keys):
            pass
        while store.run(lambda db: db.reclaim(RECLAIM_PAGES)):
            pass
        return total


def _count(store: OpenStore, before: int) -> Pruned:
    total, after = store.run(partial(count_pages, ended_before=before, scope="", after=None))
    while after is not None:
        more, after = store.run(partial(count_pages, ended_before=before, scope="", after=after))
        total += more
    return total


@contextmanager
def _told() -> Iterator[None]:
    """Print what a store refused as the server would have. Raises Leave."""
    try:
        yield
    except TurnwireError as error:
        say_error(f"{code_of(type(error)).name} / {error.reason}: {error.message}")
        raise Leave(ExitCode.REFUSED) from error

"""Runs every benchmark whose figures the README states: `make bench`."""

from __future__ import annotations

import asyncio
import sys

from bench import cancel, run, start


async def run_all() -> int:
    """Run start, turns and cancel; returns 1 when any gate is closed. Options are those of `bench.run`."""
    options = run.parse()
    print("== start of the services", flush=True)
    codes = [await start.run(start.parse([]))]
    print("== turns", flush=True)
    codes.append(await run.run(options))
    print("== cancel", flush=True)
    codes.append(
        await cancel.run(cancel.parse(["--cancels", "4", "--streams", "2"] if options.quick else []))
    )
    return max(codes)


if __name__ == "__main__":
    sys.exit(asyncio.run(run_all()))

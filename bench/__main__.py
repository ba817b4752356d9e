"""Runs every benchmark whose figures the README states: `make bench`."""

from __future__ import annotations

import asyncio
import sys

from bench import append, cancel, flat, models, run, start


async def run_all() -> int:
    """Run all of them; returns 1 when any gate is closed. Options are those of `bench.run`."""
    options = run.parse()
    print("== start of the services", flush=True)
    codes = [await start.run(start.parse([]))]
    print("== turns", flush=True)
    codes.append(await run.run(options))
    print("== the way from models", flush=True)
    codes.append(await models.run(models.parse(["--quick"] if options.quick else [])))
    print("== cancel", flush=True)
    codes.append(
        await cancel.run(cancel.parse(["--cancels", "4", "--streams", "2"] if options.quick else []))
    )
    print("== appending to logs", flush=True)
    quick_append = ["--groups", "50", "--seconds", "1", "--rounds", "1"]
    codes.append(await append.run(append.parse(quick_append if options.quick else [])))
    print("== large stores", flush=True)
    quick_flat = ["--threads", "1000", "--pairs", "1", "--turns", "20", "--steps", "20"]
    codes.append(await flat.run(flat.parse(quick_flat if options.quick else [])))
    return max(codes)


if __name__ == "__main__":
    sys.exit(asyncio.run(run_all()))

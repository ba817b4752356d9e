"""Stands in for a service under `turnwire up`: says it is ready, then behaves as FAKE_<NAME> says.

Words: `refuse` ends with 2 before it is ready, `deaf` ignores SIGTERM, `die` ends with 9 once a file appears.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    for option in ("--host", "--port", "--data", "--ready-file"):
        parser.add_argument(option)
    given = parser.parse_args()
    behaviour = os.environ.get(f"FAKE_{given.name.upper()}", "")
    links = {k: v for k, v in os.environ.items() if k.startswith("TURNWIRE_")}
    print(json.dumps({"name": given.name, "data": given.data, "links": links}), flush=True)
    if behaviour == "refuse":
        print("the settings are wrong", file=sys.stderr, flush=True)
        return 2
    leave = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: None if behaviour == "deaf" else leave.set())
    ready = Path(given.ready_file)
    partial = ready.with_suffix(".part")
    partial.write_text(json.dumps({"port": 40000 + len(given.name), "pid": os.getpid()}))
    partial.rename(ready)
    trigger = Path(given.data) / "die"
    while not leave.wait(0.05):
        if behaviour == "die" and trigger.exists():
            return 9
    print(f"{given.name} drained", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

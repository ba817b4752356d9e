"""Generate bench/floors/gen from floor.proto: `python -m bench.floors.generate`, in the repository's root."""

from __future__ import annotations

import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run protoc; returns its exit code. The folder is the package, so imports need no patching."""
    arguments = [f"-I{ROOT}", f"--python_out={ROOT}", f"--pyi_out={ROOT}", f"--grpc_python_out={ROOT}"]
    code: int = protoc.main(["protoc", *arguments, "bench/floors/gen/floor.proto"])
    return code


if __name__ == "__main__":
    sys.exit(main())

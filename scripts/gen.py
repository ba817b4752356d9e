"""Generate services/turnwire/api from protos/: afterwards the folder holds what the protos say, no more."""

from __future__ import annotations

import argparse
import filecmp
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
THIRD_PARTY = ROOT / "third_party"
GENERATED = Path("turnwire/api")


def main() -> int:
    """Write the generated code, or with --check compare it with what stands in the tree.

    Returns:
        0 when done or equal, 1 when --check found a difference or protoc refused a file.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail on any difference")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory(prefix="turnwire-gen-") as folder:
        out = Path(folder)
        code = generate(out)
        if code:
            return code
        fresh, standing = out / GENERATED, ROOT / "services" / GENERATED
        if check:
            return report(differences(fresh, standing))
        replace(fresh, standing)
    return 0


def generate(out: Path) -> int:
    """Run protoc over every proto of ours into `out`; returns protoc's exit code."""
    # Imported here: the module is in the dev group only, and its absence should say so at once.
    from grpc_tools import protoc

    files = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    if not files:
        print(f"no .proto file under {PROTOS.relative_to(ROOT)}", file=sys.stderr)
        return 1
    well_known = Path(protoc.__file__).parent / "_proto"
    code: int = protoc.main(
        [
            "protoc",
            f"-I{PROTOS}",
            f"-I{THIRD_PARTY}",
            f"-I{well_known}",
            f"--python_out={out}",
            f"--pyi_out={out}",
            f"--grpc_python_out={out}",
            *files,
        ]
    )
    if code == 0:
        for path in out.rglob("*_pb2_grpc.py"):
            if "ServiceStub" not in path.read_text(encoding="utf-8"):
                path.unlink()  # protoc writes one even for files without a service
    return code


def differences(fresh: Path, standing: Path) -> list[str]:
    """Name each file that is missing, left over or different, relative to the generated folder."""
    wanted = {path.relative_to(fresh) for path in fresh.rglob("*") if path.is_file()}
    present = {path.relative_to(standing) for path in standing.rglob("*.py*") if path.suffix != ".pyc"}
    found = [f"missing: {path}" for path in sorted(wanted - present)]
    found += [f"left over: {path}" for path in sorted(present - wanted)]
    found += [
        f"different: {path}"
        for path in sorted(wanted & present)
        if not filecmp.cmp(fresh / path, standing / path, shallow=False)
    ]
    return found


def report(found: list[str]) -> int:
    """Print the differences with the way out; returns the exit code."""
    if not found:
        return 0
    print("\n".join(found), file=sys.stderr)
    print("services/turnwire/api is not what protos/ say: run `make gen` and commit", file=sys.stderr)
    return 1


def replace(fresh: Path, standing: Path) -> None:
    """Put the fresh folder in place, touching only files whose content changed."""
    changed = differences(fresh, standing)
    for line in changed:
        kind, _, name = line.partition(": ")
        target = standing / name
        if kind == "left over":
            target.unlink()
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fresh / name, target)
    print(f"{len(changed)} files changed in services/{GENERATED}")


if __name__ == "__main__":
    sys.exit(main())

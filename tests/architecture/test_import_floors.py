"""One arrow of dependency: each package imports lower floors and itself, and nothing else of ours."""

from __future__ import annotations

import ast

from source_tree import Source, dotted, imports, is_under, sources

FLOORS = {
    "api": 1,
    "core": 1,
    "extend": 2,
    "storage": 2,
    "wire": 2,
    "runtime": 3,
    "control": 3,
    "executor": 3,
    "cli": 4,
}

# Inside the runtime; a module may import what stands on its own line or above. A module counts by the last
# word of its name: executor_link is a link.
RUNTIME_ORDER = (
    {"domain", "ports"},
    {"engine"},
    {"models", "store", "migrations", "files"},
    {"codec", "paging", "capabilities"},
    {"link", "links"},
    {"servicer", "disconnect", "roles"},
    {"settings"},
    {"main"},
)

# Words of modules that speak gRPC.
WIRE_WORDS = {"link", "links", "codec", "servicer", "roles", "main"}

SQL = ("sqlite3", "psycopg", "asyncpg", "turnwire.storage")


def speaks_wire(source: Source) -> bool:
    """Tell whether this module may import grpc and the generated messages."""
    if source.parts[0] == "turnwire_client" or source.parts[1] == "wire":
        return True
    return any(word(part) in WIRE_WORDS for part in source.parts[2:])


def floor_violation(source: Source, name: str) -> str:
    """Say what is wrong with this import between our packages, or nothing."""
    parts = name.split(".")
    if parts[0] == "turnwire_client":
        allowed = source.parts[0] == "turnwire_client" or source.parts[1] == "cli"
        return "" if allowed else "only the cli stands on the client"
    if parts[0] != "turnwire" or len(parts) < 2:
        return ""
    target = parts[1]
    if source.parts[0] == "turnwire_client":
        return "" if target == "api" else "the client is shipped with turnwire.api alone"
    own = source.parts[1]
    if target not in FLOORS:
        return f"turnwire.{target} has no floor"
    if target == own or FLOORS[target] < FLOORS[own]:
        return ""
    return f"{own} is on floor {FLOORS[own]}, {target} on floor {FLOORS[target]}"


def word(module: str) -> str:
    """Give what a module is: the last word of its name."""
    return module.rsplit("_", 1)[-1]


def rank(module: str) -> int:
    """Give a runtime module's line in RUNTIME_ORDER; -1 when it has none."""
    return next((line for line, words in enumerate(RUNTIME_ORDER) if word(module) in words), -1)


def test_every_package_of_ours_has_a_floor() -> None:
    unknown = {s.module for s in sources() if s.parts[0] == "turnwire" and s.parts[1] not in FLOORS}
    assert not unknown


def test_imports_go_down_the_floors() -> None:
    found = [
        f"{source.at(node)} imports {name}: {problem}"
        for source in sources()
        for node, name in imports(source)
        if (problem := floor_violation(source, name))
    ]
    assert not found, "\n".join(found)


def test_inside_the_runtime_imports_go_from_the_edge_to_the_domain() -> None:
    found = []
    for source in sources():
        if source.parts[:2] != ("turnwire", "runtime") or len(source.parts) < 3:
            continue
        own = rank(source.parts[2])
        assert own >= 0, f"{source.module}: give turnwire.runtime.{source.parts[2]} a line in RUNTIME_ORDER"
        for node, name in imports(source):
            if is_under(name, "turnwire.runtime") and name.count(".") >= 2:
                target = name.split(".")[2]
                if rank(target) > own:
                    found.append(f"{source.at(node)} {source.parts[2]} imports {target}")
    assert not found, "\n".join(found)


def test_only_the_edge_knows_grpc_and_its_messages() -> None:
    found = [
        f"{source.at(node)} imports {name}"
        for source in sources()
        if not speaks_wire(source)
        for node, name in imports(source)
        if is_under(name, "grpc", "grpc_health", "grpc_reflection", "grpc_status", "turnwire.api")
    ]
    assert not found, "\n".join(found)


def test_the_engine_and_the_domain_know_no_sql() -> None:
    inner = {"domain", "ports", "engine"}
    found = [
        f"{source.at(node)} imports {name}"
        for source in sources()
        if source.parts[:2] == ("turnwire", "runtime") and inner & set(source.parts[2:3])
        for node, name in imports(source)
        if is_under(name, *SQL)
    ]
    assert not found, "\n".join(found)


def test_only_main_reads_the_environment() -> None:
    found = []
    for source in sources():
        if source.parts[-1] == "main":
            continue
        # The `main` of a process that another one starts, such as a worker, stands in no main.py.
        entry = [n for n in source.tree.body if isinstance(n, ast.FunctionDef) and n.name == "main"]
        inside = {id(node) for function in entry for node in ast.walk(function)}
        for node in ast.walk(source.tree):
            if id(node) in inside:
                continue
            if isinstance(node, ast.Attribute) and dotted(node) in {"os.environ", "os.environb", "os.getenv"}:
                found.append(f"{source.at(node)} reads {dotted(node)}")
        for node, name in imports(source):
            if name in {"os.environ", "os.getenv"}:
                found.append(f"{source.at(node)} imports {name}")
    assert not found, "\n".join(found)

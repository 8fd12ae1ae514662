"""The two processes as they run: what each has loaded, and what the frontend was given."""

import re
import subprocess
import sys

import pytest

from tests.support.command import COMMAND
from tests.support.documents import README
from tests.support.place import CANARY_NAME
from tests.support.processes import command_line, environment, mapped_files, peak_memory_bytes
from tests.support.raw_client import RawClient

NEVER_IN_THE_BROKER = (
    "mcp",
    "mcp_types",
    "pydantic",
    "pydantic_core",
    "anyio",
    "httpx",
    "starlette",
    "frontend",
    "asyncio",
)
NEVER_IN_A_FRONTEND = ("broker", "re2", "_re2")
NEVER_ON_THE_COMMAND_LINE = ("mcp", "mcp_types", "pydantic", "anyio", *NEVER_IN_A_FRONTEND)

LOADED = "import sys, {}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"


def top_level_modules(*imported: str) -> set[str]:
    """Return the packages that are loaded after importing modules in an interpreter like the product's own."""
    program = LOADED.format(", ".join(imported))
    ended = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, check=True, text=True, timeout=30
    )
    return set(ended.stdout.split())


def test_a_serving_broker_never_loads_a_frontend_or_what_it_is_made_of() -> None:
    loaded = top_level_modules(
        "broker.main", "broker.serving", "broker.startup", "broker.service", "broker.pipeline"
    )
    assert loaded.isdisjoint(NEVER_IN_THE_BROKER)


@pytest.mark.parametrize("module", ["frontend.mcp_server", "frontend.mcp_session", "frontend.command_line"])
def test_a_frontend_never_loads_the_broker(module: str) -> None:
    assert top_level_modules(module).isdisjoint(NEVER_IN_A_FRONTEND)


def test_the_command_line_does_not_load_the_sdk() -> None:
    assert top_level_modules("frontend.command_line").isdisjoint(NEVER_ON_THE_COMMAND_LINE)


def test_the_running_broker_has_no_file_of_the_sdk_mapped(raw: RawClient) -> None:
    raw.run("true")
    mapped = mapped_files(raw.pid)
    assert any("msgspec" in path for path in mapped), "the broker's own extension module is seen"
    assert not [path for path in mapped if "pydantic" in path or "rpds" in path]


def test_the_running_frontend_has_the_sdk_and_not_the_regex_engine_mapped(raw: RawClient) -> None:
    raw.run("true")
    mapped = mapped_files(raw.frontend_pid())
    assert any("pydantic_core" in path for path in mapped), "the SDK's extension module is seen"
    assert not [path for path in mapped if "re2" in path]


def test_what_the_readme_signals_is_a_servers_broker_and_nothing_else(raw: RawClient) -> None:
    (pattern,) = re.findall(r"pkill -HUP -f '(.+)'", README.read_text(encoding="utf-8"))
    server = " ".join(command_line(raw.pid))
    assert re.search(pattern, server)
    assert re.search(pattern, f"{server} serve")
    assert not re.search(pattern, " ".join(command_line(raw.frontend_pid())))
    for other in (
        f"{server} audit show -f",
        f"{server} run ls",
        "uv run hardened-terminal-mcp",
        f"ssh host {COMMAND}",
    ):
        assert not re.search(pattern, other)


def test_the_running_frontend_is_an_isolated_interpreter(raw: RawClient) -> None:
    program, *options = command_line(raw.frontend_pid())
    assert program == sys.executable
    assert options[:2] == ["-I", "-c"]
    assert options[2].startswith("try: from frontend.mcp_server import main\n")


def test_the_frontend_gets_no_setting_and_no_secret(raw: RawClient) -> None:
    given = environment(raw.frontend_pid())
    assert {name for name in given if name.startswith("HTMCP_")} == {"HTMCP_BROKER_FD"}
    assert CANARY_NAME not in given
    assert raw.place.canary not in str(given)
    assert str(raw.place.folder) not in str(given)


def test_the_command_line_of_a_process_shows_neither_policy_nor_trail(raw: RawClient) -> None:
    for pid in (raw.pid, raw.frontend_pid()):
        shown = " ".join(command_line(pid))
        assert str(raw.place.policy) not in shown
        assert str(raw.place.trail) not in shown


def test_a_folder_that_is_named_like_a_package_of_ours_is_never_imported(raw: RawClient) -> None:
    for name in ("broker", "frontend", "protocol", "mcp", "msgspec"):
        package = raw.place.folder / name
        package.mkdir()
        (package / "__init__.py").write_text("open('imported.txt', 'w').close()\n")
    with RawClient(raw.place) as other:
        other.initialize()
        assert other.run("echo served").stdout == "served\n"
    assert not (raw.place.folder / "imported.txt").exists()


def test_the_broker_is_small(raw: RawClient) -> None:
    raw.run("ls")
    assert peak_memory_bytes(raw.pid) < 64 * 1024 * 1024

"""What a client learns before its first call, in each era of the protocol."""

from collections.abc import Iterator

import pytest

from tests.support.place import Place
from tests.support.raw_client import RawClient
from tests.support.sdk_client import SdkClient


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkClient]:
    """The SDK's client in the era without a handshake."""
    with SdkClient(Place(tmp_path_factory.mktemp("modern")), mode="auto") as connected:
        yield connected


def test_a_client_of_the_era_without_handshake_is_served(modern: SdkClient) -> None:
    assert modern.client.protocol_version == "2026-07-28"
    assert set(modern.tools()) == {"run_command", "explain_command"}
    assert modern.run("echo served").stdout == "served\n"
    assert modern.explain("rm x").code == "POLICY_DENIED"
    assert modern.call("run_command", {"command": 7}).code == "PARSE_ERROR"


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
def test_clients_of_old_and_new_handshakes_are_served(place: Place, version: str) -> None:
    with RawClient(place) as raw:
        assert raw.initialize(version)["protocolVersion"] == version
        assert raw.run("echo served").stdout == "served\n"
        assert "result" in raw.answer(raw.request("ping", {}))


def test_the_instructions_name_the_allowed_programs_and_no_denied_one(place: Place) -> None:
    with RawClient(place) as fresh:
        instructions = fresh.initialize()["instructions"]
    words = instructions.replace(",", " ").replace(".", " ").split()
    assert {"git", "cat", "sleep"} <= set(words)
    assert {"wc", "rm"}.isdisjoint(words)


def test_a_tool_says_what_it_does_and_what_may_be_assumed_of_it(client: SdkClient) -> None:
    tools = client.tools()
    for tool in tools.values():
        assert tool.title
        assert tool.description
        assert tool.input_schema["additionalProperties"] is False
        assert all(field.get("description") for field in tool.input_schema["properties"].values())
    explain, run = tools["explain_command"].annotations, tools["run_command"].annotations
    assert explain is not None
    assert run is not None
    assert (explain.read_only_hint, explain.idempotent_hint) == (True, True)
    assert (run.read_only_hint, run.destructive_hint) == (False, True)


def test_a_description_teaches_how_to_read_a_refusal(client: SdkClient) -> None:
    description = client.tools()["run_command"].description or ""
    assert "POLICY_DENIED" in description
    assert "policy_reason" in description
    assert "git" in description


def test_a_refusal_says_what_would_be_allowed_instead(client: SdkClient) -> None:
    assert "log" in client.run("git push").policy_reason
    assert "-l" in client.run("ls --color=always").policy_reason

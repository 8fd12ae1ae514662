"""The registry's server.json and the bundle's manifest.json: what their schemas require, and what they say of us.

The schemas are not here, so what they require of such files is written out: server.json of 2025-12-11, MCPB 0.4.
"""

import json
import re
import tomllib
from typing import Any

from frontend.tools import Tool
from tests.support.documents import README, ROOT, VARIABLES_IN_CODE

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REVERSE_DNS = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+/[a-zA-Z0-9._-]+")
SEMANTIC = re.compile(r"\d+\.\d+\.\d+")
SHORT = 100


def read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / name).read_text(encoding="utf-8"))
    return loaded


def test_the_registry_entry_has_what_its_schema_requires() -> None:
    entry = read("server.json")
    assert entry.keys() <= {"$schema", "name", "title", "description", "version", "packages", "repository"}
    assert entry["$schema"].endswith("/2025-12-11/server.schema.json")
    assert REVERSE_DNS.fullmatch(entry["name"])
    assert "repository" in entry or entry["name"].startswith("internal."), "what is nowhere belongs to nobody"
    assert 1 <= len(entry["description"]) <= SHORT
    assert 1 <= len(entry["title"]) <= SHORT
    assert SEMANTIC.fullmatch(entry["version"])
    for package in entry["packages"]:
        assert {"registryType", "identifier", "version", "transport"} <= package.keys()
        assert package["transport"] == {"type": "stdio"}


def test_no_file_that_is_read_by_machines_has_a_word_that_somebody_was_to_replace() -> None:
    for name in ("server.json", "manifest.json", "pyproject.toml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not re.search(r"OWNER|CHANGEME|FIXME|example\.(?:com|org)|your-name", text), name
    assert "OWNER" not in README.read_text(encoding="utf-8")


def test_the_registry_entry_is_about_this_package() -> None:
    entry = read("server.json")
    (package,) = entry["packages"]
    assert (package["identifier"], package["version"]) == (PROJECT["name"], PROJECT["version"])
    assert entry["version"] == PROJECT["version"]
    assert f"<!-- mcp-name: {entry['name']} -->" in README.read_text(encoding="utf-8")
    for variable in package["environmentVariables"]:
        assert variable["name"] in VARIABLES_IN_CODE
        assert variable.keys() <= {"name", "description", "format", "isRequired", "default", "choices"}
        assert variable.get("format", "string") in ("string", "number", "boolean", "filepath")


def test_the_bundle_manifest_has_what_its_schema_requires() -> None:
    manifest = read("manifest.json")
    assert manifest["manifest_version"] == "0.4"
    assert {"name", "version", "description", "author", "server"} <= manifest.keys()
    assert manifest["author"]["name"]
    server = manifest["server"]
    assert server["type"] == "uv"
    assert (ROOT / server["entry_point"]).is_file()
    assert {"command", "args"} <= server["mcp_config"].keys()
    for option in manifest["user_config"].values():
        assert option["type"] in ("string", "number", "boolean", "directory", "file")
        assert option["title"]
        assert option["description"]


def test_the_bundle_manifest_is_about_this_package() -> None:
    manifest = read("manifest.json")
    assert (manifest["name"], manifest["version"]) == (PROJECT["name"], PROJECT["version"])
    assert manifest["description"] == PROJECT["description"]
    assert manifest["compatibility"]["runtimes"]["python"] == PROJECT["requires-python"]
    assert manifest["compatibility"]["platforms"] == ["linux"]
    assert {tool["name"] for tool in manifest["tools"]} == {tool.value for tool in Tool}
    environment = manifest["server"]["mcp_config"]["env"]
    assert environment.keys() <= VARIABLES_IN_CODE
    used = set(re.findall(r"\$\{user_config\.(\w+)\}", json.dumps(environment)))
    assert used == manifest["user_config"].keys()
    assert manifest["server"]["mcp_config"]["args"][-1] in PROJECT["scripts"]


def test_the_changelog_speaks_of_the_version_or_of_what_is_to_come() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{PROJECT['version']}]" in text or "## [Unreleased]" in text

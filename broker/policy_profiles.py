"""The ready-made entries of `init --profile`: put below a policy that is there, whoever has edited it.

Always true: what the policy had stays as it stands, byte for byte; what it has already is not written again; where it has
an entry of the same name with another content, or would lose one of its own tests, nothing is added and each is named.
"""

import os
import tomllib
from collections.abc import Iterator
from typing import Any, NamedTuple

from broker import policy_file
from broker.jail import Jail
from broker.policy import Policy
from broker.programs import Programs
from broker.refusal import StartupError

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "profiles")


class Added(NamedTuple):
    """A policy with profiles, and the headers of what was added; empty if all of it was there."""

    raw: bytes
    headers: list[str]


class _Block(NamedTuple):
    """A table of a profile's file: its header, the comment above it, and the lines up to the next."""

    header: str
    text: str

    @property
    def path(self) -> list[str]:
        return self.header.strip("[]").split(".")

    @property
    def content(self) -> dict[str, Any]:
        table = _at(tomllib.loads(self.text), self.path)
        return table[0] if isinstance(table, list) else table or {}


def profile_names() -> list[str]:
    """Return the names of the profiles that ship."""
    return sorted(entry.removesuffix(".toml") for entry in os.listdir(FOLDER) if entry.endswith(".toml"))


def with_profiles(raw: bytes, names: list[str], where: str = "policy.toml") -> Added:
    """Return the policy `raw` with the profiles `names` below it. Raises StartupError; `where` names the policy in it."""
    policy_file.load(raw, where)
    added = Added(raw, [])
    for name in names:
        if name not in profile_names():
            raise StartupError(f"profile {name!r}: one of {', '.join(profile_names())} is expected")
        added = _with_profile(added, name, where)
    return added


def _with_profile(before: Added, name: str, where: str) -> Added:
    with open(os.path.join(FOLDER, f"{name}.toml"), encoding="utf-8") as file:
        blocks = list(_blocks(file.read()))
    table = tomllib.loads(before.raw.decode())
    conflicts = list(_conflicts(blocks, table))
    if conflicts:
        raise StartupError(
            f"policy {where}: profile {name} cannot be added; change these first: {'; '.join(conflicts)}"
        )
    new = [block for block in blocks if not _is_there(block, table)]
    if not new:
        return before
    text = before.raw.decode()
    raw = "".join(
        [text, "" if text.endswith("\n") or not text else "\n", *(block.text for block in new)]
    ).encode()
    policy_file.load(raw, f"{where} with profile {name}")
    return Added(raw, before.headers + [block.header for block in new])


def _blocks(text: str) -> Iterator[_Block]:
    """Yield the tables of a profile. A comment belongs to the table below it; no other line begins with `[`."""
    header, lines, comment = "", list[str](), list[str]()
    for line in text.splitlines(keepends=True):
        if line.startswith("["):
            if header:
                yield _Block(header, "".join(lines))
                lines = []
            header = line.partition("#")[0].strip()
            lines += [*comment, line]
            comment = []
        elif line.startswith("#") or not line.strip():
            comment.append(line)
        else:
            lines += [*comment, line]
            comment = []
    yield _Block(header, "".join([*lines, *comment]))


def _is_there(block: _Block, table: dict[str, Any]) -> bool:
    found = _at(table, block.path)
    return block.content in found if isinstance(found, list) else found is not None


def _conflicts(blocks: list[_Block], table: dict[str, Any]) -> Iterator[str]:
    """Yield what of the policy keeps a profile from meaning what it says."""
    own = {".".join(block.path) for block in blocks}
    for block in blocks:
        found = _at(table, block.path)
        if isinstance(found, dict) and _plain(found, block.path, own) != block.content:
            yield f"{block.header} is in it already and says something else"
        program = ".".join(block.path[:2])
        if block.path[0] == "rules" and program not in own and _at(table, block.path[:2]) is None:
            yield f"[{program}] is missing, which {block.header} adds to"
        denied = table.get("commands", {}).get("deny", [])
        if block.path[0] == "profile" and set(denied) & set(block.content.get("allow", ())):
            yield f"{' '.join(name for name in block.content['allow'] if name in denied)} is on the deny list"
        if block.path[2:] == ["options"]:
            yield from (
                f"[options] {name} is in it already and would win"
                for name in block.content.keys() & table.get("options", {}).keys()
            )


def _at(table: dict[str, Any], path: list[str]) -> Any:
    """Return what stands at `path`, or None."""
    found: Any = table
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _plain(table: dict[str, Any], path: list[str], headers: set[str]) -> dict[str, Any]:
    """Return the table at `path` without the tables below it that have one of `headers` or are no part of a rule."""
    apart = {"subcommand", "options", "rules"}
    apart |= {key for key in table if ".".join([*path, key]) in headers}
    return {key: value for key, value in table.items() if key not in apart}


def check(raw: bytes, path: str) -> None:
    """Raise StartupError if a start with the policy `raw`, which is to stand at `path`, would be refused for its tests."""
    file = policy_file.load(raw, path)
    jail = Jail(os.path.dirname(os.path.abspath(path)))
    programs = Programs(file.environment.path, jail, policy_file.named_programs(file), lazily=True)
    if failures := Policy(file, raw, jail, programs).self_test():
        raise policy_file.refusal(raw, path, failures)

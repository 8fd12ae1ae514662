"""What was perhaps meant by a name that is not on a list, and what to do instead: for the reason of a refusal.

Always true: its cost is bounded by the list, whatever was asked; it is imported only once something was refused. What it
tells somebody to call is allowed, and can be started here.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.policy import Policy

LONGEST = 32
"""Characters of a name that is worth comparing: the cost grows with their square."""

FEW = 20
"""So many programs a refusal names without another word."""

_INSTEAD = {
    "cd pushd popd": "there is no shell that could change folder; give the folder in `cwd`",
    "sudo su doas": "commands run as they are, without more rights",
    "export set unset alias source . eval exec": "there is no shell; the environment is fixed by the policy",
    "env": "the environment is fixed by the policy; name the program itself",
    "time timeout watch nohup nice": "name the program itself: the policy limits its time, duration_ms says what it took",
    "awk gawk perl": "its argument is a program; use grep, cut, or sed -n 'N,Mp' FILE",
    "less more": "there is no terminal; use cat, head, tail, or sed -n 'N,Mp' FILE",
    "vi vim nano emacs ed": "there is no terminal; the client's own tools edit files",
    "touch mkdir rmdir rm mv cp ln chmod chown tee dd truncate install": "it changes files; the client's own tools do that",
    "curl wget ssh scp rsync": "no command has the network unless the policy says so; use the client's own tools",
    "xargs parallel": "it runs other programs; name the files in one command",
    "bash sh dash zsh fish": "no shell is available; give the commands one by one",
}
_USE = {
    "type command whereis": "which NAME",
    "l ll dir": "ls -l",
    "egrep": "grep -E",
    "fgrep": "grep -F",
    "hostname": "uname -n",
    "[ [[": "test",
}
"""Names → what is called in their place, where that may be called."""

_RUNNERS = ("make", "python3", "python", "node", "npm", "cargo", "go")
"""Programs that are allowed for what they run of the jail."""

_PROFILES = {
    "git-write": "git",
    "go": "go gofmt",
    "make": "make",
    "node": "npm node",
    "python": "pytest python3 python mypy ruff pip",
    "rust": "cargo rustc",
}
"""Profile of `init --profile` → the programs that it allows; a test holds this against the profiles."""


def nearest(untrusted_name: str, names: Sequence[str]) -> list[str]:
    """Return at most three of `names`, the most similar first. Of programs `slips` asks: similar ones are others."""
    if len(untrusted_name) > LONGEST:
        return []
    from difflib import get_close_matches

    return get_close_matches(untrusted_name, [name for name in names if len(name) <= LONGEST], 3)


def slips(untrusted_name: str, names: Iterable[str]) -> list[str]:
    """Return at most three of `names` that differ from a name by one slip of the hand, or by a version's number."""
    return [name for name in names if name != untrusted_name and _one_slip(untrusted_name, name)][:3]


def _one_slip(typed: str, meant: str) -> bool:
    stem = typed.rstrip("0123456789.")
    if stem and stem == meant.rstrip("0123456789."):
        return True
    shorter, longer = sorted((typed, meant), key=len)
    if len(shorter) < 2 or len(longer) > min(len(shorter) + 1, LONGEST):
        return False
    place = next((n for n, letter in enumerate(shorter) if letter != longer[n]), len(shorter))
    if len(shorter) < len(longer):
        return longer[place + 1 :] == shorter[place:]
    swapped = shorter[place + 1 : place + 2] + shorter[place : place + 1]
    if longer[place:] == swapped + shorter[place + 2 :]:
        return True
    return len(longer) > 4 and longer[place + 1 :] == shorter[place + 1 :]


def profile_of(untrusted_name: str) -> str:
    """Return the profile that has entries for a program, an empty text for none."""
    return next((name for name, programs in _PROFILES.items() if untrusted_name in programs.split()), "")


def instead_of(policy: "Policy", untrusted_name: str) -> str:
    """Return what to call instead of a program that is on no list, or that is and is not here; "" for nothing."""
    if untrusted_name in policy.programs:
        way = _way_to(policy, untrusted_name) or " ".join(slips(untrusted_name, policy.callable))
        return f"instead, perhaps: {way}" if way else ""
    return _of_path(policy, untrusted_name) if "/" in untrusted_name else _of_name(policy, untrusted_name)


def _of_path(policy: "Policy", untrusted_path: str) -> str:
    name = os.path.basename(untrusted_path)
    if name in policy.callable:
        return f"call it by its name: {name}"
    if way := _way_to(policy, name):
        return f"instead, perhaps: {way}"
    if untrusted_path.startswith("/"):
        return _of_name(policy, name)
    runners = ", ".join(runner for runner in _RUNNERS if runner in policy.callable)
    return "no file of the jail is called by its path" + (
        f"; what may run some: {runners}" if runners else ""
    )


def _of_name(policy: "Policy", untrusted_name: str) -> str:
    use = _said_of(untrusted_name, _USE)
    if use.partition(" ")[0] in policy.callable:
        return f"use {use}"
    return _said_of(untrusted_name, _INSTEAD) or _names(policy, untrusted_name)


def _said_of(untrusted_name: str, table: Mapping[str, str]) -> str:
    return next((text for names, text in table.items() if untrusted_name in names.split()), "")


def _names(policy: "Policy", untrusted_name: str) -> str:
    """Return what a name was perhaps meant to be, who can add it, and where the allowed ones are named."""
    profile = profile_of(untrusted_name)
    added = f"ready-made entries: init --profile {profile}; " if profile else ""
    near = slips(untrusted_name, policy.callable)
    if len(policy.programs) <= FEW:
        names = [*near, *(name for name in policy.callable if name not in near)]
        none = "none that is allowed is installed" if policy.programs else "no program is allowed"
        return added + (f"allowed: {' '.join(names)}" if names else none)
    meant = f"meant, perhaps: {' '.join(near)}; " if near and not profile else ""
    return f"{added}{meant}the tool's description names what may be called"


def _way_to(policy: "Policy", name: str) -> str:
    """Return how a program is called through another, such as `python3 -m pytest`."""
    for program in policy.callable:
        rule = policy.file.rules.get(program)
        if rule is not None and name in (rule.subcommands or rule.subcommand):
            return " ".join((program, *rule.require_options, name))
    return ""

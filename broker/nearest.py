"""What was perhaps meant by a name that is not on a list, and what to do instead: for the reason of a refusal.

Always true: its cost is bounded by the list, whatever was asked; it is imported only once something was refused. What it
tells somebody to call is allowed, and can be started here.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from broker.refusal import PolicyDenied

if TYPE_CHECKING:
    from broker.policy import Policy

LONGEST = 32
"""Characters of a name that is worth comparing: the cost grows with their square."""

FEW = 20
"""So many programs a refusal names without another word."""

_ELSE = "use the client's own tools if it has such, or ask the user"

_INSTEAD = {
    "cd pushd popd": "there is no shell that could change folder; give the folder in `cwd`",
    "sudo su doas": "commands run as they are, without more rights",
    "export set unset alias source . eval exec": "there is no shell; the environment is fixed by the policy",
    "env": "the environment is fixed by the policy; name the program itself",
    "time timeout watch": "name the program itself: the policy limits its time, duration_ms says what it took",
    "nohup nice ionice setsid stdbuf": "name the program itself",
    "for while until if case select do then": "there is no shell: no loops or conditions; name several files in one command",
    "awk gawk perl": "its argument is a program; use grep, cut, or sed -n 'N,Mp' FILE",
    "less more": "there is no terminal; use cat, head, tail, or sed -n 'N,Mp' FILE",
    "vi vim nano emacs ed": "there is no terminal; the client's own tools edit files",
    "touch mkdir rmdir rm mv cp ln chmod chown tee dd truncate install": f"it changes files; {_ELSE}",
    "curl wget ssh scp rsync": f"no command has the network unless the policy says so; {_ELSE}",
    "tar unzip zip zcat gunzip gzip bzcat xzcat zgrep zless xz bzip2 7z": "archives are not read; ask the user to unpack it",
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
    "fd fdfind": "find . -name PATTERN|rg --files",
}
"""Names → what is called in their place, where that may be called."""

_INTERPRETERS = {".py": ("python3", "python"), ".js": ("node",), ".sh": ("sh", "bash")}
_CALL_SCRIPTS = {"a target of make": "make test", "a script of npm run": "npm run test"}
"""What may call a file of the jail → a command that is allowed where that is."""

_PROFILES = {
    "git-write": "git",
    "go": "go gofmt",
    "make": "make",
    "node": "npm node",
    "python": "pytest python3 python mypy ruff pip",
    "rust": "cargo rustc",
}
"""Profile of `init --profile` → the programs that it allows; a test holds this against the profiles."""

_PROFILE_OF_SUBCOMMANDS = {
    "git": ("git-write", "add rm restore reset checkout switch commit merge cherry-pick revert stash"),
    "git stash": ("git-write", "push pop apply drop branch clear list"),
}
"""Program → the profile that adds subcommands to it, and those; a test holds this against the profiles."""


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
        other = place == 0 and longer is typed  # a letter in front makes another program: cmake, zgrep
        return longer[place + 1 :] == shorter[place:] and not other
    swapped = shorter[place + 1 : place + 2] + shorter[place : place + 1]
    if longer[place:] == swapped + shorter[place + 2 :]:
        return True
    return len(longer) > 4 and longer[place + 1 :] == shorter[place + 1 :]


def profile_of(untrusted_name: str) -> str:
    """Return the profile that has entries for a program, an empty text for none."""
    return next((name for name, programs in _PROFILES.items() if untrusted_name in programs.split()), "")


def profile_with(name: str, untrusted_subcommand: str) -> str:
    """Return which profile has an entry for a subcommand of `name`, for a reason; an empty text for none."""
    profile, subcommands = _PROFILE_OF_SUBCOMMANDS.get(name, ("", ""))
    return f"see init --profile {profile}" if untrusted_subcommand in subcommands.split() else ""


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
    if way := _way_to(policy, "pytest" if name.startswith("python") else name):
        return f"instead, perhaps: {way}"
    if name.startswith("python") and (near := slips(name, policy.callable)):
        return f"instead, perhaps: {near[0]}"
    if untrusted_path.startswith("/"):
        return _of_name(policy, name)
    return _of_script(policy, name)


def _of_script(policy: "Policy", name: str) -> str:
    """Return what runs a file of the jail, as far as its entry allows just that."""
    for program in _INTERPRETERS.get(os.path.splitext(name)[1], ()):
        if _allows(policy, f"{program} {name}"):
            return f"instead, perhaps: {program} FILE"
    ways = " or ".join(way for way, command in _CALL_SCRIPTS.items() if _allows(policy, command))
    return "no file of the jail is called by its path" + (f"; perhaps {ways} does it" if ways else "")


def _of_name(policy: "Policy", untrusted_name: str) -> str:
    uses = [
        use for use in _said_of(untrusted_name, _USE).split("|") if use.partition(" ")[0] in policy.callable
    ]
    if uses:
        return f"use {' or '.join(uses)}"
    if untrusted_name in ("rm", "mv") and _allows(policy, f"git {untrusted_name} a b"):
        return f"it changes files: git {untrusted_name} does so with what git tracks; else {_ELSE}"
    return _said_of(untrusted_name, _INSTEAD) or _names(policy, untrusted_name)


def _allows(policy: "Policy", command: str) -> bool:
    """Whether the program can be started here, and its entry allows the arguments; where paths lead is not asked."""
    program, *words = command.split(" ")
    if program not in policy.callable:
        return False
    try:
        policy.entry(program).judge(words)
    except PolicyDenied:
        return False
    return True


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

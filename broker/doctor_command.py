"""`hardened-terminal-mcp doctor`: which layers this kernel has, what would be used here, and what to do next.

Always true: nothing of a policy is run and nothing is changed here; what is said about policy, jail and trail comes from the
functions that a start uses. Exit status 0: a server can start here; 1: it cannot.
"""

import contextlib
import os
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec

from broker import (
    audit,
    configuration,
    doctor,
    grammar,
    nursery,
    policy_check,
    private_folder,
    remote,
    startup,
)
from broker.arguments import operator_parser, quoted
from broker.audit_show import style_of
from broker.cells import folded
from broker.configuration import NAME, Settings
from broker.doctor import Finding
from broker.policy import Policy
from broker.refusal import Refusal, StartupError
from protocol.client import BrokerClient, BrokerGone

_ELSEWHERE = "HTMCP_BROKER: policy, jail and trail are those beyond {0!r}: run doctor there"
_ALLOWED = f"see what may be called: {NAME} check --describe"
_USUAL = "ls -l"
_ANSWER_S = 10
_TEXT_AT = 9
"""Characters that a finding's word takes."""


class Place(NamedTuple):
    """What a start here would use, as far as it gets; `problem` is what stops it, `warnings` do not.

    `example`: a command that would run and change nothing; beyond another broker the one that is tried most.
    """

    policy: str | None
    mode: str
    jail: str | None
    trail: str | None
    problem: str | None
    warnings: tuple[str, ...] = ()
    example: str = ""


def main(arguments: list[str]) -> int:
    """Print the findings. Returns the exit status."""
    parser = operator_parser(
        "doctor",
        "Say which kernel layers are there, what a server started here would use, and what to do next.",
        (f"{NAME} doctor", f"HTMCP_JAIL_ROOT=/srv/project {NAME} doctor --json"),
        "0 a server can start here, 1 it cannot",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    found, place = doctor.findings(), place_of(os.environ)
    if options.json:
        print(msgspec.json.encode(_report(found, place)).decode())
    else:
        width = style_of(sys.stdout).width
        print("\n".join(folded(line, width, _TEXT_AT) for line in _lines(found, place)))
    return 0 if _can_start(found, place) else 1


def place_of(environ: Mapping[str, str]) -> Place:
    """Return what a start with this environment would use."""
    policy, mode, jail, trail = None, "required", None, None
    try:
        if carrier := environ.get("HTMCP_BROKER"):
            _check_carrier(carrier)
            return Place(None, mode, None, None, None, (_ELSEWHERE.format(carrier),), _USUAL)
        settings = configuration.read(environ)
        policy, mode = settings.found.path, settings.file.containment.mode
        opened = startup.open_jail(settings.file, settings.environ)
        jail = opened.root
        trail = startup.audit_settings(settings.file, settings.environ)[0]
        example = _example(_try(settings, trail))
    except StartupError as error:
        return Place(policy, mode, jail, trail, str(error))
    warned = (*policy_check.weakened(settings.file), *policy_check.exposed(settings.file, opened.real))
    return Place(policy, mode, jail, trail, None, tuple(map(str, warned)), example)


def _example(policy: Policy) -> str:
    """Return the first of what people try, or of what the policy's own tests allow, that would run here."""
    allowed = [test.command for test in policy.file.tests if test.expect == "allow"]
    for command in (_USUAL, "pwd", *allowed):
        with contextlib.suppress(Refusal), policy.jail.locate(None) as located:
            argv = grammar.parse(command, metacharacters=policy.file.metacharacters, globs=policy.file.globs)
            if not policy.permit(policy.choose(argv), located).profile.writes:
                return command
    return ""


def _try(settings: Settings, trail: str) -> Policy:
    """Return the policy. Raises StartupError where a start would, short of opening the trail, which would write to it."""
    jail = startup.open_jail(settings.file, settings.environ)
    policy = startup.build_gate(settings, jail).policy
    if jail.contains(trail):
        raise StartupError(
            f"audit log {trail}: lies in the jail; name a place outside it with HTMCP_AUDIT_LOG"
        )
    is_default = startup.audit_settings(settings.file, settings.environ)[2]
    folder = os.path.dirname(trail)
    if not is_default and not os.path.isdir(folder):
        raise StartupError(f"audit log {trail}: folder {folder} does not exist")
    home = os.path.join(configuration.state_folder(settings.environ), "home")
    for what, place in ((f"audit log {trail}", folder), (f"the HOME of commands, {home}", home)):
        if problem := _could_be_exchanged(place):
            raise StartupError(f"{what}: {problem}")
    if os.path.isdir(folder):
        audit.check(trail, settings.file.audit.mirror)
    if os.path.isdir(home):
        startup.check_empty(home)
    nursery.identity_of(settings.file.containment.run_as)
    doctor.try_frontend()
    return policy


def _check_carrier(command: str) -> None:
    """Raise StartupError where no broker answers. One that does is told nothing but that somebody is there."""
    words = remote.words_of(command)
    if shutil.which(words[0]) is None:
        raise StartupError(f"HTMCP_BROKER: {command!r}: the program that reaches a broker is not found")
    far, carrier = remote.start_carrier(words)
    late = threading.Timer(_ANSWER_S, _give_up, (far.shutdown,))
    late.start()
    why, has_ended = "", False
    try:
        BrokerClient(far, "doctor")
    except BrokerGone as gone:
        why, has_ended = str(gone), carrier.ends_within(remote.FAREWELL_S)
    finally:
        in_time = not late.finished.is_set()
        late.cancel()
        late.join()
        far.close()
        status = carrier.end(patience_s=remote.FAREWELL_S)
    if has_ended:
        why = f"no broker answered (`{words[0]}` ended with {status})"
    elif why:
        why = f"what answers is no broker: {why}" if in_time else f"no broker answered within {_ANSWER_S} s"
    if why:
        raise StartupError(f"HTMCP_BROKER: {command!r}: {why}")


def _give_up(shutdown: Callable[[int], object]) -> None:
    with contextlib.suppress(OSError):  # the other end has gone by itself
        shutdown(socket.SHUT_RDWR)


def _could_be_exchanged(folder: str) -> str:
    """Return what a start would say of a folder, of which the last parts may be missing yet."""
    there = private_folder.nearest(folder)
    if there != folder and not os.access(there, os.W_OK | os.X_OK):
        return f"no folder can be made in {there}; XDG_STATE_HOME, or HTMCP_AUDIT_LOG for the trail, names another place"
    try:
        return private_folder.problem(there, alone=there == folder)
    except OSError as error:
        return error.strerror or str(error)


def _can_start(found: tuple[Finding, ...], place: Place) -> bool:
    return place.problem is None and (place.mode != "required" or doctor.sound(found))


def _machine() -> str:
    system = os.uname()
    python = ".".join(str(part) for part in sys.version_info[:3])
    return f"{NAME} {version(NAME)}, Linux {system.release}, {system.machine}, Python {python}, user {os.geteuid()}"


def _report(found: tuple[Finding, ...], place: Place) -> dict[str, Any]:
    return {
        "machine": _machine(),
        "layers": doctor.data(found),
        **place._asdict(),
        "can_start": _can_start(found, place),
        "next": _next(found, place),
    }


def _lines(found: tuple[Finding, ...], place: Place) -> list[str]:
    return [
        _machine(),
        "",
        *doctor.lines(found),
        "",
        f"policy   {place.policy or '-'}",
        f"mode     {place.mode}",
        f"jail     {place.jail or '-'}",
        f"trail    {place.trail or '-'}",
        *([f"problem  {place.problem}"] if place.problem else []),
        *(f"warning  {text}" for text in place.warnings),
        "",
        "next:",
        *(f"  {step}" for step in _next(found, place)),
    ]


def _next(found: tuple[Finding, ...], place: Place) -> list[str]:
    steps = []
    if not doctor.sound(found):
        steps.append("get the layers that are MISSING above: each line says how")
        if place.mode == "required":
            steps.append(
                'or accept less: [containment] mode = "best-effort" in the policy starts without them'
            )
        else:
            steps.append(f"a server starts without them all the same: [containment] mode is {place.mode}")
    problem = place.problem or ""
    if "audit log" in problem:
        steps.append(
            f"mend the problem above; {NAME} audit verify says what is wrong with a trail, audit repair starts a new one"
        )
    elif problem.startswith("no policy: "):
        steps.append(f"write a policy: {NAME} init (or name one with HTMCP_POLICY_FILE)")
    elif problem:
        of_policy = f"; {NAME} check shows all that is wrong with the policy" if place.policy else ""
        steps.append(f"mend the problem above{of_policy}")
    if steps:
        return steps
    return [
        f"try it: {NAME} run {quoted([place.example])}" if place.example else _ALLOWED,
        f"connect a client: {NAME} init --client claude (or cursor, vscode)",
    ]

"""`hardened-terminal-mcp check [FILE]`: what is wrong with a policy, and what is legal but hardly meant.

Always true: it starts nothing and changes nothing; the verdicts are those that a broker in the same place would give.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from broker import configuration, policy_check, policy_file, startup
from broker.arguments import operator_parser
from broker.audit_show import style_of
from broker.cells import folded
from broker.policy import Policy
from broker.policy_check import Warned
from broker.programs import Programs
from broker.refusal import PolicyFaults, StartupError

EXIT_FAULTS = 78
"""EX_CONFIG of sysexits.h, as for a start with such a file."""


def main(arguments: list[str]) -> int:
    """Check a policy. Returns 0 if a broker would use it, 1 if not, or if its own tests fail, 78 for faults."""
    options = _parser().parse_args(arguments)
    try:
        return _checked(options)
    except StartupError as error:
        if not options.json:
            raise
        faults = error.faults if isinstance(error, PolicyFaults) else [str(error)]
        print(msgspec.json.encode({"policy": options.file, "faults": faults}).decode())
        return EXIT_FAULTS


def _checked(options: argparse.Namespace) -> int:
    elsewhere = [] if options.file else _elsewhere(os.environ)
    if not options.json:
        print("".join(f"warning: {warned}\n" for warned in elsewhere), end="", file=sys.stderr)
    found = _found(options.file)
    try:
        policy_file.check(found.raw, found.path)
    except PolicyFaults as error:
        if options.json:
            raise
        print("\n".join(f"{found.path}:{fault}" for fault in error.faults), file=sys.stderr)
        return EXIT_FAULTS
    file = policy_file.load(found.raw, found.path)
    jail = startup.open_jail(file, os.environ)
    programs = Programs(file.environment.path, jail, policy_file.named_programs(file))
    policy = Policy(file, found.raw, jail, programs)
    if options.describe:
        print(policy.describe())
        return 0
    report = _report(policy, found)
    if options.json:
        report["warnings"] = [warned._asdict() for warned in elsewhere] + report["warnings"]
        print(msgspec.json.encode(report).decode())
    else:
        _print(report)
    return 1 if report["failed_tests"] or (report["trust"] and not options.file) else 0


def _found(file: str | None) -> configuration.FoundPolicy:
    """Return the policy to check: a file that is given is judged as if HTMCP_POLICY_FILE named it."""
    environ = {**os.environ, "HTMCP_POLICY_FILE": file} if file else os.environ
    return configuration.find_policy(environ)


def _parser() -> argparse.ArgumentParser:
    parser = operator_parser(
        "check",
        "Check a policy: its faults, its self-tests, and entries that are legal but hardly meant.",
        (
            "hardened-terminal-mcp check",
            "hardened-terminal-mcp check --json policy.toml",
            "hardened-terminal-mcp check --describe",
        ),
        "0 usable, 1 a self-test fails, or (without FILE) a server here would not take it, 78 a fault in the file",
    )
    parser.add_argument("file", nargs="?", help="the policy (default: the one that a server here would use)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--describe", action="store_true", help="print what a model is told of it instead, if it has no fault"
    )
    return parser


def _elsewhere(environ: Mapping[str, str]) -> list[Warned]:
    """Return the warning that what is checked is not what a server here would have in force."""
    carrier = environ.get("HTMCP_BROKER")
    return (
        [Warned("HTMCP_BROKER", f"the policy in force is that beyond {carrier!r}: run check there")]
        if carrier
        else []
    )


def _report(policy: Policy, found: configuration.FoundPolicy) -> dict[str, Any]:
    return {
        "policy": found.path,
        "sha256": policy.digest,
        "programs": len(policy.programs),
        "self_tests": len(policy.file.tests),
        "failed_tests": _failed_tests(policy, found),
        "trust": _trust(policy, found),
        "warnings": [warned._asdict() for warned in policy_check.check(policy)],
        "faults": [],
    }


def _failed_tests(policy: Policy, found: configuration.FoundPolicy) -> list[str]:
    failures = policy.self_test()
    return policy_file.refusal(found.raw, found.path, failures).faults if failures else []


def _trust(policy: Policy, found: configuration.FoundPolicy) -> str | None:
    in_jail = startup.brought_along(found, os.environ, policy.jail)
    try:
        configuration.check_trust(
            found, os.environ, in_jail=in_jail, jail_is_writable=policy_file.grants_writes(policy.file)
        )
    except StartupError as error:
        return str(error)
    return None


def _print(report: dict[str, Any]) -> None:
    counts = f"{_counted(report['programs'], 'program')}, {_counted(report['self_tests'], 'self-test')}"
    said = f"{report['policy']}: {counts}, SHA-256 {report['sha256']}"
    lines = [said, *(f"{report['policy']}:{line}" for line in report["failed_tests"])]
    lines += [f"warning: {warned['place']}: {warned['text']}" for warned in report["warnings"]]
    if not report["failed_tests"]:
        lines.append(_conclusion(report))
    width = style_of(sys.stdout).width
    for line in lines:
        print(folded(line, width))


def _conclusion(report: dict[str, Any]) -> str:
    warnings = len(report["warnings"])
    think = f"; think about {_counted(warnings, 'warning')}" if warnings else ""
    return (
        f"usable{think}" if not report["trust"] else f"usable elsewhere{think}; not here: {report['trust']}"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

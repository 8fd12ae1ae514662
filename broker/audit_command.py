"""`hardened-terminal-mcp audit`: verify, show, count, report or repair a trail.

Always true: only `repair` changes anything. Exit status 0: as asked; 1: the trail does not verify; 2: usage;
78: it cannot be read (EX_CONFIG of sysexits.h).
"""

import argparse
import os
import sys
from collections.abc import Callable

import msgspec

from broker import configuration, policy_file
from broker.arguments import operator_parser
from broker.audit_file import TrailFaultError
from broker.audit_reading import check_form, entries, named, sources_of
from broker.audit_record import GENESIS
from broker.audit_selection import add_options, selection_of
from broker.audit_verify import Verdict, verify
from broker.main import OUTPUT_IS_FULL
from broker.refusal import StartupError

_FAILED = 1
_EXAMPLES = (
    "hardened-terminal-mcp audit show -f",
    "hardened-terminal-mcp audit show --since 2h --code policy_denied",
    "hardened-terminal-mcp audit stats --since 7d",
    "hardened-terminal-mcp audit report --html report.html",
    "hardened-terminal-mcp audit verify",
)


def main(arguments: list[str], default_log: str | None = None) -> int:
    """Run one of the commands on FILE, or on the trail at `default_log`.

    Returns the exit status. Raises StartupError.
    """
    options = _parser().parse_args(arguments)
    options.log = options.log or default_log or _configured_log()
    act: Callable[[argparse.Namespace], int] = options.act
    try:
        return act(options)
    except KeyboardInterrupt:
        return 0
    except (OSError, TrailFaultError) as error:
        if isinstance(error, BrokenPipeError) or (
            isinstance(error, OSError) and error.filename is None and error.errno in OUTPUT_IS_FULL
        ):
            raise  # it is about what is printed
        raise StartupError(f"{_what(error, options)}: {_text(error, options)}") from None


def _what(error: Exception, options: argparse.Namespace) -> str:
    """Return what the fault is about: a file of the trail, or the page that was to be written."""
    named = isinstance(error, OSError) and error.filename
    file = os.fsdecode(named) if named else options.log
    return f"report {file}" if file == getattr(options, "html", None) else f"audit log {file}"


def _text(error: Exception, options: argparse.Namespace) -> str:
    if not isinstance(error, OSError):
        return str(error)
    text = error.strerror or str(error)
    if isinstance(error, FileNotFoundError) and error.filename == options.log:
        return f"{text}; the first server or `run` begins it, --log FILE names another"
    if isinstance(error, PermissionError):
        return f"{text}; only the user whose servers write it may read it"
    return text


def _configured_log() -> str:
    environ = os.environ
    log = environ.get("HTMCP_AUDIT_LOG") or _log_of_the_policy()
    return os.path.abspath(log) if log else os.path.join(configuration.state_folder(environ), "audit.jsonl")


def _log_of_the_policy() -> str | None:
    # A policy that no broker would start with says nothing about where the trail is.
    try:
        found = configuration.find_policy(os.environ)
        return policy_file.load(found.raw, found.path).audit.log
    except StartupError:
        return None


def _parser() -> argparse.ArgumentParser:
    parser = operator_parser(
        "audit",
        "Read the audit trail. Without --log: HTMCP_AUDIT_LOG, the policy's, or the user's state folder.",
        _EXAMPLES,
        "0 as asked, 1 the trail does not verify, 2 wrong usage, 78 it cannot be read",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_verify(commands)
    _add_show(commands)
    stats = _add(commands, "stats", _stats, "sums: by program, code, reason, and over time")
    add_options(stats)
    report = _add(commands, "report", _report, "the sums, charts and newest records as one page")
    report.add_argument("--html", required=True, metavar="FILE", help="where to write the page")
    report.add_argument(
        "--rows", type=_count, default=2_000, metavar="N", help="how many records (default: 2000)"
    )
    add_options(report)
    _add(commands, "repair", _repair, "seal a trail that does not verify, and start a new one")
    return parser


def _add(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    act: Callable[[argparse.Namespace], int],
    text: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.add_argument("--log", metavar="FILE", help="the trail")
    parser.set_defaults(act=act)
    return parser


def _add_verify(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _add(commands, "verify", _verify, "name the first line that is not what was written")
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="files that follow each other, oldest first (default: all of the trail)",
    )
    parser.add_argument(
        "--head", type=_hash, metavar="HASH", help="a hash noted earlier, which must stand in the trail"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_show(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _add(commands, "show", _show, "the newest records as a table")
    parser.add_argument(
        "-n", "--number", type=_count, default=50, metavar="N", help="how many rows (default: 50; 0: all)"
    )
    parser.add_argument(
        "--json", action="store_true", help="the records as they stand in the file, attempts too"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is written from now on")
    add_options(parser)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number")
    return int(text)


def _hash(text: str) -> str:
    if len(text) != len(GENESIS) or text.strip("0123456789abcdef"):
        raise argparse.ArgumentTypeError("64 hexadecimal digits in lower case are expected")
    return text


def _verify(options: argparse.Namespace) -> int:
    sources = named(options.files) if options.files else sources_of(options.log)
    verdict = verify(sources, options.head)
    if options.json:
        print(msgspec.json.encode({"sound": verdict.sound, **msgspec.to_builtins(verdict)}).decode())
    else:
        print("\n".join(_verdict_lines(verdict)))
    return 0 if verdict.sound else _FAILED


def _verdict_lines(verdict: Verdict) -> list[str]:
    said = []
    if verdict.fault is not None:
        said.append(f"BROKEN  {verdict.fault.file}, line {verdict.fault.line}: {verdict.fault.why}")
        said.append("NEXT    keep a copy, then: hardened-terminal-mcp audit repair")
    records = f"records {verdict.first_seq} to {verdict.last_seq}" if verdict.records else "no records"
    said.append(
        f"{'OK    ' if verdict.sound else 'INTACT'}  {records}, {verdict.bytes:,} bytes, head {verdict.head}"
    )
    if verdict.records and verdict.first_prev != GENESIS:
        said.append(
            f"NOTE    what stood before record {verdict.first_seq} is not here; it ended in {verdict.first_prev}"
        )
    if verdict.torn_bytes:
        said.append(
            f"NOTE    a last line of {verdict.torn_bytes} bytes is torn; the next start sets it aside"
        )
    if verdict.wanted is not None:
        said.append(_head_line(verdict))
    return said


def _head_line(verdict: Verdict) -> str:
    if verdict.wanted_seq is None:
        return f"MISSING no record has the hash {verdict.wanted}: the end was cut off, or written anew"
    return f"HEAD    the hash is that of record {verdict.wanted_seq}; nothing before it was cut off"


def _show(options: argparse.Namespace) -> int:
    from broker.audit_show import show

    check_form(options.log)
    selection = selection_of(options)
    show(options.log, selection, limit=options.number, following=options.follow, as_json=options.json)
    return 0


def _stats(options: argparse.Namespace) -> int:
    from broker.audit_show import style_of
    from broker.audit_stats import stats_lines
    from broker.audit_tally import Tally

    check_form(options.log)
    selection, tally = selection_of(options), Tally()
    tally.add_all(entries(sources_of(options.log), selection.since), selection)
    sys.stdout.write("\n".join(stats_lines(tally, style_of(sys.stdout).width)) + "\n")
    return 0


def _report(options: argparse.Namespace) -> int:
    from broker.audit_report import write_report

    check_form(options.log)
    written = write_report(options.log, selection_of(options), options.rows, options.html)
    print(f"{options.html}: {written:,} characters")
    return 0


def _repair(options: argparse.Namespace) -> int:
    from broker.audit_repair import repair

    repaired = repair(options.log)
    print(repaired.said)
    for name in repaired.sealed:
        print(f"sealed: {name}")
    return 0

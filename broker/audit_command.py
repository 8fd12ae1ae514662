"""`hardened-terminal-mcp audit`: verify, show, count, report or repair a trail.

Always true: only `repair` changes anything; nobody takes a command that was interrupted for one that found nothing.
Exit status 0: as asked; 1: the trail does not verify; 2: usage; 78: it cannot be read (EX_CONFIG of sysexits.h).
"""

import argparse
import os
import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from broker import configuration, policy_file
from broker.arguments import add_command, operator_parser
from broker.audit_file import TrailFaultError
from broker.audit_reading import check_form, entries, named, sources_of
from broker.audit_record import GENESIS, escaped
from broker.audit_selection import Selection, add_options, selection_of
from broker.audit_verify import Verdict, verify
from broker.cells import folded
from broker.main import OUTPUT_IS_FULL
from broker.refusal import StartupError

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_FAILED = 1
_TEXT_AT = 8
_ROWS = 2_000
_MOST_ROWS = 10_000
"""What a browser still shows at once, and what fits into memory."""

_DIGITS = 19
"""A number with fewer is below `sys.maxsize`; one with thousands, `int` does not take."""

_NAME = "hardened-terminal-mcp audit"
_EXAMPLES = (
    f"{_NAME} show -f",
    f"{_NAME} show --since 2h --code policy_denied",
    f"{_NAME} stats --since 7d",
    f"{_NAME} report --html report.html",
    f"{_NAME} verify",
)
_READ = "2 wrong usage, 74 its output cannot be written, 78 the trail cannot be read, 130 interrupted"


def main(arguments: list[str], default_log: str | None = None) -> int:
    """Run one of the commands on FILE, or on the trail at `default_log`.

    Returns the exit status. Raises StartupError, KeyboardInterrupt.
    """
    options, unknown = _parser().parse_known_args(arguments)
    if unknown:
        options.wrong(f"unrecognized arguments: {' '.join(unknown)}")
    options.named = options.log
    try:
        options.log = options.log or default_log or _configured_log()
        return _done(options)
    except StartupError as error:
        text = "\n".join(map(_printable, str(error).split("\n")))
        if options.as_object and options.json:
            _print_object({"error": text})
        raise StartupError(text) from None


def _done(options: argparse.Namespace) -> int:
    act: Callable[[argparse.Namespace], int] = options.act
    try:
        return act(options)
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
    if isinstance(error, PermissionError) and error.filename != getattr(options, "html", None):
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
    _add_stats(commands)
    _add_report(commands)
    repair = _add(
        commands,
        "repair",
        _repair,
        "seal a trail that does not verify, and start a new one",
        examples=(f"{_NAME} repair", f"{_NAME} repair --log /var/log/agent/audit.jsonl"),
        exit_status="0 it verifies, or a new one has begun; 2 wrong usage, 78 it cannot be read or written",
    )
    _add_json(repair)
    return parser


def _add(
    commands: "_Commands",
    name: str,
    act: Callable[[argparse.Namespace], int],
    text: str,
    *,
    examples: tuple[str, ...],
    exit_status: str,
) -> argparse.ArgumentParser:
    parser = add_command(commands, name, text, examples, exit_status)
    parser.add_argument("--log", metavar="FILE", help="the trail")
    parser.set_defaults(act=act, as_object=True, wrong=parser.error)
    return parser


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object, of what went wrong too")


def _add_verify(commands: "_Commands") -> None:
    parser = _add(
        commands,
        "verify",
        _verify,
        "name the first line that is not what was written",
        examples=(
            f"{_NAME} verify",
            f"{_NAME} verify --head HASH",
            f"{_NAME} verify old/audit.jsonl.* old/audit.jsonl",
        ),
        exit_status=f"0 sound, 1 not, {_READ}",
    )
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="files that follow each other, oldest first (default: all of the trail)",
    )
    parser.add_argument(
        "--head", type=_hash, metavar="HASH", help="a hash noted earlier, which must stand in the trail"
    )
    _add_json(parser)


def _add_show(commands: "_Commands") -> None:
    examples = (
        f"{_NAME} show -f",
        f"{_NAME} show --since 2h --code policy_denied",
        f"{_NAME} show --jail ~/src/app --program git --json",
    )
    status = f"0 as asked, and where --follow was interrupted; {_READ}"
    parser = _add(
        commands, "show", _show, "the newest records as a table", examples=examples, exit_status=status
    )
    parser.add_argument(
        "-n",
        "--number",
        type=_count,
        default=50,
        metavar="N",
        help="how many rows (default: 50; 0: all, with --follow none)",
    )
    parser.add_argument(
        "--json", action="store_true", help="the records as they stand in the file, attempts too"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is written from now on")
    parser.set_defaults(as_object=False)
    add_options(parser)


def _add_stats(commands: "_Commands") -> None:
    text = "sums: by program, code, reason, and over time"
    examples = (f"{_NAME} stats --since 7d", f"{_NAME} stats --jail ~/src/app --json")
    parser = _add(commands, "stats", _stats, text, examples=examples, exit_status=f"0 as asked, {_READ}")
    _add_json(parser)
    add_options(parser)


def _add_report(commands: "_Commands") -> None:
    parser = _add(
        commands,
        "report",
        _report,
        "the sums, charts and newest records as one page",
        examples=(
            f"{_NAME} report --html report.html",
            f"{_NAME} report --since 7d --html - | gzip > report.html.gz",
        ),
        exit_status=f"0 written, {_READ}",
    )
    parser.add_argument(
        "--html", required=True, metavar="FILE", help="where to write the page; - is standard output"
    )
    parser.add_argument(
        "--rows",
        type=_rows,
        default=_ROWS,
        metavar="N",
        help=f"how many records (default: {_ROWS}, at most {_MOST_ROWS})",
    )
    _add_json(parser)
    add_options(parser)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number")
    return int(text) if len(text) < _DIGITS else sys.maxsize


def _rows(text: str) -> int:
    if not text.isdecimal() or len(text) >= _DIGITS or not 1 <= int(text) <= _MOST_ROWS:
        raise argparse.ArgumentTypeError(f"{text!r}: a number from 1 to {_MOST_ROWS} is expected")
    return int(text)


def _hash(text: str) -> str:
    if len(text) != len(GENESIS) or text.strip("0123456789abcdef"):
        raise argparse.ArgumentTypeError("64 hexadecimal digits in lower case are expected")
    return text


def _print_object(found: object) -> None:
    # What stands in a trail reaches the terminal here too: nothing in it may hide or reorder what is read.
    print(escaped(msgspec.json.encode(_encodable(found))).decode())


def _encodable(found: object) -> object:
    """Return the same with every text as UTF-8 can say it: a file's name may be any bytes."""
    if isinstance(found, str):
        return found.encode("utf-8", "backslashreplace").decode()
    if isinstance(found, dict):
        return {name: _encodable(value) for name, value in found.items()}
    return list(map(_encodable, found)) if isinstance(found, list | tuple) else found


def _printable(text: str) -> str:
    from broker.audit_show import printable

    return printable(text)


def _verify(options: argparse.Namespace) -> int:
    from broker.audit_show import style_of

    sources = named(options.files) if options.files else sources_of(options.log)
    verdict = verify(sources, options.head)
    if options.json:
        _print_object({"sound": verdict.sound, **msgspec.to_builtins(verdict)})
    else:
        width = style_of(sys.stdout).width
        for line in _verdict_lines(verdict, _repair_command(options)):
            print(folded(_printable(line), width, _TEXT_AT))
    return 0 if verdict.sound else _FAILED


def _repair_command(options: argparse.Namespace) -> str:
    """Return how the trail is repaired that was verified: files that are named may be any, of any trail."""
    if options.files:
        return f"{_NAME} repair --log FILE, for the trail that these files are of"
    return f"{_NAME} repair" + (f" --log {shlex.quote(options.named)}" if options.named else "")


def _verdict_lines(verdict: Verdict, repair: str) -> list[str]:
    said = []
    if (fault := verdict.fault) is not None:
        said.append(f"BROKEN  {fault.file}, line {fault.line}: {fault.why}")
        said.append(f"NEXT    keep a copy, then: {repair}")
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
        older = "" if verdict.first_prev == GENESIS else f", or it stood before record {verdict.first_seq}"
        return f"MISSING no record has the hash {verdict.wanted}: the end was cut off, or written anew{older}"
    return f"HEAD    the hash is that of record {verdict.wanted_seq}; nothing before it was cut off"


def _show(options: argparse.Namespace) -> int:
    from broker.audit_show import show

    try:
        check_form(options.log)
        selection = selection_of(options)._replace(starts=options.json)
        some = show(
            options.log, selection, limit=options.number, following=options.follow, as_json=options.json
        )
        if not some and selection != Selection(starts=options.json):
            print("hardened-terminal-mcp: no record matches these options", file=sys.stderr)
    except KeyboardInterrupt:
        if not options.follow:
            raise
    return 0


def _stats(options: argparse.Namespace) -> int:
    from broker.audit_show import style_of
    from broker.audit_stats import stats_lines, stats_object
    from broker.audit_tally import Tally

    check_form(options.log)
    selection, tally = selection_of(options), Tally()
    tally.add_all(entries(sources_of(options.log), selection.since), selection)
    if options.json:
        _print_object(stats_object(tally))
    else:
        print("\n".join(stats_lines(tally, style_of(sys.stdout).width)))
    return 0


def _report(options: argparse.Namespace) -> int:
    from broker.audit_report import write_report
    from broker.audit_target import is_standard_output

    is_page = is_standard_output(options.html)
    if is_page and options.json:
        options.wrong("--json and this --html are both for standard output; name a file for the page")
    check_form(options.log)
    written = write_report(options.log, selection_of(options), options.rows, options.html)
    if options.json:
        _print_object({"html": options.html, "characters": written})
    elif not is_page:
        print(f"{_printable(options.html)}: {written:,} characters")
    return 0


def _repair(options: argparse.Namespace) -> int:
    from broker.audit_repair import repair

    repaired = repair(options.log)
    if options.json:
        _print_object(repaired._asdict())
        return 0
    print(_printable(repaired.said))
    for name in repaired.sealed:
        print(f"sealed: {_printable(name)}")
    return 0

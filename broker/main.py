"""The two console commands, and which part of the package each of their subcommands is.

Always true: whatever goes wrong before a frontend exists is one line on stderr and exit status 78, or 2 for a command
line that cannot be read; no traceback. Operator commands are imported when they are asked for.
"""

import argparse
import os
import sys
from collections.abc import Callable
from importlib import import_module

from broker.refusal import StartupError

EXIT_CONFIGURATION = 78
"""EX_CONFIG of sysexits.h."""
EXIT_INTERNAL = 70
"""EX_SOFTWARE of sysexits.h."""

OPERATOR_COMMANDS = {
    "init": ("broker.init_command", "write a policy to start from, and say what to do next"),
    "trust": ("broker.trust_command", "approve a policy.toml that lies in the jail"),
    "check": ("broker.check_command", "check a policy: faults, self-tests, warnings"),
    "doctor": ("broker.doctor_command", "say which layers this kernel has, and what is missing"),
    "redact": ("broker.redact_command", "redact standard input to standard output"),
    "audit": ("broker.audit_command", "verify, show, count or repair the audit trail"),
}
"""Each has `main(arguments) -> exit status` and reads its own options."""

EXAMPLES = """examples:
  hardened-terminal-mcp run "git log --oneline -5"   run one command through broker and frontend
  hardened-terminal-mcp explain "rm -rf build"       say whether it would be allowed, and why
  hardened-terminal-mcp init                         write a policy of your own
  hardened-terminal-mcp serve                        serve MCP over stdin and stdout (also without any argument)

exit status of run: the command's own; 126 refused, 124 timeout, 125 another failure of ours, 128+N killed by signal N;
78 for a configuration that cannot be used."""


def hardened_terminal_mcp() -> None:
    """Run `hardened-terminal-mcp`."""
    sys.exit(_guarded(_main, sys.argv[1:]))


def hardened_terminal_broker() -> None:
    """Run `hardened-terminal-broker`."""
    sys.exit(_guarded(_broker_main, sys.argv[1:]))


def _guarded(main: Callable[[list[str]], int], arguments: list[str]) -> int:
    try:
        _open_missing_streams()
        return main(arguments)
    except StartupError as error:
        print(f"hardened-terminal-mcp: {error}", file=sys.stderr)
        return EXIT_CONFIGURATION
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the interpreter's last flush does not fail
        return 141
    except Exception as error:  # noqa: BLE001 - no traceback reaches a client's log
        print(f"hardened-terminal-mcp: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        return EXIT_INTERNAL


def _open_missing_streams() -> None:
    # a caller that closed 0, 1 or 2: the next descriptor, a socket or the jail, would otherwise become a stream
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(fd)


def _main(arguments: list[str]) -> int:
    if arguments and arguments[0] in OPERATOR_COMMANDS:
        module, _ = OPERATOR_COMMANDS[arguments[0]]
        status: int = import_module(module).main(arguments[1:])
        return status
    return _serve_frontend(_frontend_arguments(_parser().parse_args(arguments)))


def _frontend_arguments(options: argparse.Namespace) -> tuple[str, ...]:
    from broker import frontend_process

    if options.name in (None, "serve"):
        return frontend_process.python_frontend(frontend_process.MCP_SERVER)
    form = "json" if options.json else "text"
    arguments = (options.name, form, getattr(options, "cwd", None) or "", options.command)
    return frontend_process.python_frontend((*frontend_process.COMMAND_LINE, *arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hardened-terminal-mcp",
        description="A policy-gated terminal for MCP clients: allow-listed commands, no shell, one jail, redacted and audited.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="name", metavar="COMMAND")
    commands.add_parser("serve", help="serve MCP over stdin and stdout (the default)")
    run = commands.add_parser("run", help="run one command and exit with its status")
    run.add_argument("--cwd", metavar="DIR", help="working directory, inside the jail")
    explain = commands.add_parser("explain", help="say whether a command is allowed, and why; never runs it")
    for command in (run, explain):
        command.add_argument("--json", action="store_true", help="print the whole envelope as JSON")
        command.add_argument("command", metavar="COMMAND", help='the command as one word, such as "ls -l"')
    for name, (_, text) in OPERATOR_COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"{parser.prog} {version('hardened-terminal-mcp')}")
        parser.exit()


def _broker_main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="hardened-terminal-broker",
        description="The broker alone, for other frontends. The protocol is written up in docs/protocol.md.",
    )
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument(
        "--stdio",
        action="store_true",
        help="serve standard input and output, so that ssh or kubectl exec can carry it",
    )
    way.add_argument("--fd", type=int, metavar="N", help="serve the inherited stream socket N")
    way.add_argument(
        "program",
        nargs="?",
        metavar="-- PROGRAM",
        help="start PROGRAM as a confined frontend; HTMCP_BROKER_FD names its socket",
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.program is not None:
        return _serve_frontend((options.program, *options.arguments))
    from broker import serving

    return serving.serve_stdio() if options.stdio else serving.serve_fd(options.fd)


def _serve_frontend(argv: tuple[str, ...]) -> int:
    remote = os.environ.get("HTMCP_BROKER")
    from broker import serving

    return serving.serve_remote(argv, remote) if remote else serving.serve_frontend(argv)

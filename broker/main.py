"""The two console commands, and which part of the package each of their subcommands is.

Always true: whatever goes wrong before a frontend exists is one line on stderr and exit status 78, or 2 for a command
line that cannot be read; no traceback. Operator commands are imported when they are asked for.
"""

import errno
import io
import os
import sys

from broker import early_end

TYPE_CHECKING = False
"""typing's, but its import would take longer than all that comes before `early_end` begins: what else takes long comes after."""
if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_CONFIGURATION = 78
"""EX_CONFIG of sysexits.h."""
EXIT_INTERNAL = 70
"""EX_SOFTWARE of sysexits.h."""
EXIT_OUTPUT = 74
"""EX_IOERR of sysexits.h: what a command prints cannot be written."""
EXIT_INTERRUPTED = 130
"""128 and the number of SIGINT, as a shell says it."""
OUTPUT_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_THREAD = "can't start new thread"
"""What Python's RuntimeError says."""

OPERATOR_COMMANDS = {
    "init": ("broker.init_command", "write a policy to start from, and say what to do next"),
    "trust": ("broker.trust_command", "approve a policy.toml that lies in the jail"),
    "check": ("broker.check_command", "check a policy: faults, self-tests, warnings"),
    "doctor": ("broker.doctor_command", "say which layers this kernel has, and what is missing"),
    "redact": ("broker.redact_command", "redact files, or standard input, to standard output"),
    "audit": ("broker.audit_command", "verify, show, count or repair the audit trail"),
    "completion": ("broker.completion_command", "print completions for bash, zsh or fish"),
}
"""Each has `main(arguments) -> exit status` and reads its own options."""


def hardened_terminal_mcp() -> None:
    """Run `hardened-terminal-mcp`."""
    early_end.begin()
    _leave(_guarded("hardened-terminal-mcp", _main))


def hardened_terminal_broker() -> None:
    """Run `hardened-terminal-broker`."""
    early_end.begin()
    _leave(_guarded("hardened-terminal-broker", _broker_main))


def _leave(status: int) -> None:
    """End the process. The interpreter's own end would take apart, piece by piece, what the kernel frees at once."""
    from contextlib import suppress

    with suppress(OSError):
        _flushed(status)
    os._exit(status)


def _flushed(status: int) -> int:
    print(end="", flush=True)
    return status


def _guarded(name: str, main: "Callable[[list[str]], int]") -> int:
    from broker import lean  # noqa: F401 - before anything that imports msgspec
    from broker.refusal import StartupError

    os.umask(os.umask(0o077) & 0o077)  # what we make we can use, whatever whoever started us had taken away
    try:
        _open_missing_streams()
        return _flushed(_status(main))
    except StartupError as error:
        _say(f"{name}: {error}")
        return EXIT_CONFIGURATION
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return 141
    except Exception as error:  # noqa: BLE001 - no traceback reaches a client's log
        return _failed(name, error)


def _status(main: "Callable[[list[str]], int]") -> int:
    try:
        return main(sys.argv[1:])
    except SystemExit as ended:  # how argparse ends, after help or wrong usage
        return ended.code if isinstance(ended.code, int) else 0


def _failed(name: str, error: Exception) -> int:
    if (
        isinstance(error, OSError)
        and error.filename is None
        and (error.errno in OUTPUT_IS_FULL or _are_shut())
    ):
        _say(f"{name}: cannot write: {error.strerror}")
        return EXIT_OUTPUT
    if isinstance(error, FileNotFoundError) and not _is_somewhere():
        _say(f"{name}: the current folder is gone: go to one that exists")
        return EXIT_CONFIGURATION
    if isinstance(error, MemoryError) or str(error) == _NO_THREAD:
        _say(
            f"{name}: cannot start: this user, or this container, has as many threads or as much memory as it may have"
        )
        return EXIT_CONFIGURATION
    _say(f"{name}: internal error: {type(error).__name__}: {error}")
    return EXIT_INTERNAL


def _say(text: str) -> None:
    """Tell it on stderr; no name and no path that it speaks of steers a terminal."""
    from contextlib import suppress

    from broker.notice import printable

    with suppress(OSError):  # nobody can be told
        print(*map(printable, text.split("\n")), sep="\n", file=sys.stderr)


def _are_shut() -> bool:
    """Whether stdout or stderr takes nothing at all: it is open for reading alone, or a terminal that is gone."""
    try:
        for fd in (1, 2):
            os.write(fd, b"")
    except OSError:
        return True
    return False


def _is_somewhere() -> bool:
    """Whether the current folder still has a name."""
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _open_missing_streams() -> None:
    # a caller that closed 0, 1 or 2: the next descriptor, a socket or the jail, would otherwise become a stream
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(fd)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:  # Python found it closed
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - to the end


def _main(arguments: list[str]) -> int:
    if arguments and arguments[0] in OPERATOR_COMMANDS:
        return _operate(OPERATOR_COMMANDS[arguments[0]][0], arguments[1:])
    return _serve_frontend(_plain(arguments) or _parsed(arguments))


def _operate(module: str, arguments: list[str]) -> int:
    from importlib import import_module

    from broker import lean
    from broker.refusal import StartupError

    early_end.leave()
    lean.end_of_start()
    if isinstance(sys.stdout, io.TextIOWrapper):  # an old encoding must not keep anybody from reading a trail
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status: int = import_module(module).main(arguments)
    except UnicodeEncodeError as error:
        raise StartupError(f"no JSON can hold {error.object!r}, which is not UTF-8") from None
    return status


def _plain(arguments: list[str]) -> tuple[str, ...] | None:
    """Return the frontend for a command line that takes no parser to read, as nearly all are."""
    if arguments in ([], ["serve"]):
        return _mcp_frontend()
    if len(arguments) == 2 and arguments[0] in ("run", "explain") and not arguments[1].startswith("-"):
        return _call_frontend(arguments[0], "text", "", arguments[1])
    return None


def _parsed(arguments: list[str]) -> tuple[str, ...]:
    from broker.arguments import read

    options = read(arguments, {name: text for name, (_, text) in OPERATOR_COMMANDS.items()})
    if options.name in (None, "serve"):
        return _mcp_frontend()
    form = "json" if options.json else "text"
    return _call_frontend(options.name, form, getattr(options, "cwd", None) or "", options.command)


def _mcp_frontend() -> tuple[str, ...]:
    from broker import frontend_process

    return frontend_process.python_frontend(frontend_process.MCP_SERVER)


def _call_frontend(verb: str, form: str, cwd: str, command: str) -> tuple[str, ...]:
    from broker import frontend_process

    return frontend_process.python_frontend((*frontend_process.COMMAND_LINE, verb, form, cwd, command))


def _broker_main(arguments: list[str]) -> int:
    from broker.arguments import broker_parser

    options = broker_parser().parse_args(arguments)
    if options.program is not None:
        return _serve_frontend((options.program, *options.arguments))
    from broker import serving

    return serving.serve_stdio() if options.stdio else serving.serve_fd(options.fd)


def _serve_frontend(argv: tuple[str, ...]) -> int:
    command = os.environ.get("HTMCP_BROKER")
    if command:
        from broker import remote

        return remote.serve(argv, command)
    from broker import serving

    return serving.serve_frontend(argv)

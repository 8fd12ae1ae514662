"""`redact`: the redactor as a filter over files or standard input, so that an operator can try it on own ones.

Always true: nothing of a secret reaches standard error. Exit status 0; 1 if a file could not be read, after the others;
2 for wrong arguments; 78 (EX_CONFIG) for a policy that cannot be used.
"""

import argparse
import contextlib
import sys
from codecs import getincrementaldecoder
from typing import BinaryIO

from broker import redaction_catalogue, schema
from broker.arguments import operator_parser
from broker.notice import printable
from broker.redaction import Redactor
from broker.refusal import StartupError

CHUNK_BYTES = 64 * 1024
EXIT_UNREAD = 1
_KEYED_NAMES = (
    "access_key account_key api_key auth auth_key aws_secret_access_key aws_session_token credential encryption_key key"
    " langsmith_api_key openai_api_key passphrase password pre_shared_key private_key secret secret_key session signature"
    " signing_key token"
)


def main(arguments: list[str]) -> int:
    """Run the filter. Returns the exit status; raises StartupError."""
    options = _parser().parse_args(arguments)
    config = _config(options.policy)
    redactor = Redactor(config)
    if options.list:
        sys.stdout.write("\n".join(names(config)) + "\n")
        return 0
    read = [_redact(redactor, name, explain=options.explain) for name in options.files or ["-"]]
    return 0 if all(read) else EXIT_UNREAD


def _parser() -> argparse.ArgumentParser:
    parser = operator_parser(
        "redact",
        "Write files, or standard input, to standard output with each secret replaced by [REDACTED:name].",
        (
            "hardened-terminal-mcp redact build.log",
            "make 2>&1 | hardened-terminal-mcp redact",
            "hardened-terminal-mcp redact --explain build.log > /dev/null",
        ),
        "0 done, 1 a file cannot be read, 2 wrong usage, 78 a policy that cannot be used",
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="what to read; - or nothing: standard input")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="say on standard error what was replaced, where, and how long it was",
    )
    parser.add_argument("--list", action="store_true", help="print the names of all patterns and exit")
    parser.add_argument(
        "--policy",
        metavar="FILE",
        help="use the [redaction] table of this policy (default: the shipped patterns)",
    )
    return parser


def names(config: schema.Redaction) -> list[str]:
    """All names that can stand in a marker."""
    shipped = {pattern.name for pattern in redaction_catalogue.catalogue().patterns}
    extra = {pattern.name for pattern in config.extra_patterns}
    entropy = {"high_entropy"} if config.entropy_fallback else set()
    return sorted(shipped | extra | entropy | set(_KEYED_NAMES.split()))


def _config(policy: str | None) -> schema.Redaction:
    if policy is None:
        return schema.Redaction()
    from broker import policy_file  # only this option needs the policy's reader

    try:
        with open(policy, "rb") as file:
            return policy_file.load(file.read(), policy).redaction
    except OSError as fault:
        raise StartupError(f"{policy}: {fault.strerror}") from None


def _redact(redactor: Redactor, name: str, *, explain: bool) -> bool:
    """Filter one file. Returns whether it could be read."""
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if name == "-" else open(name, "rb") as file:
            _filter(redactor, file, f"{printable(name)}: " if name != "-" else "", explain=explain)
    except BrokenPipeError:
        raise
    except OSError as fault:
        sys.stdout.flush()
        sys.stderr.write(f"hardened-terminal-mcp: {printable(name)}: {fault.strerror}\n")
        return False
    return True


def _filter(redactor: Redactor, file: BinaryIO, place: str, *, explain: bool) -> None:
    def tell(name: str, line: int, column: int, size: int) -> None:
        sys.stderr.write(f"{place}line {line}, column {column}: {name}, {size} bytes\n")

    stream = redactor.stream(on_found=tell if explain else None)
    decoder = getincrementaldecoder("utf-8")("replace")
    while chunk := file.read(CHUNK_BYTES):
        sys.stdout.buffer.write(stream.feed_bytes(decoder.decode(chunk).encode()))
    last = decoder.decode(b"", final=True).encode()
    sys.stdout.buffer.write(stream.feed_bytes(last) + stream.close_bytes())
    sys.stdout.buffer.flush()

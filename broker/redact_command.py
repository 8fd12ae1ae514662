"""`redact`: the redactor as a filter from standard input to standard output, so that an operator can try it on own files.

Always true: nothing of a secret reaches standard error. Exit status 0; 2 for wrong arguments; 78 (EX_CONFIG) for a
policy that cannot be used.
"""

import sys
from codecs import getincrementaldecoder

from broker import redaction_catalogue, schema
from broker.redaction import Redactor
from broker.refusal import StartupError

USAGE = """usage: hardened-terminal-mcp redact [--policy FILE] [--explain] < INPUT
       hardened-terminal-mcp redact --list [--policy FILE]

Reads standard input, writes it to standard output with each secret replaced by [REDACTED:name].
  --explain      say on standard error what was replaced, where, and how long it was
  --list         print the names of all patterns and exit
  --policy FILE  use the [redaction] table of this policy (default: the shipped patterns)

examples:
  hardened-terminal-mcp redact < build.log
  hardened-terminal-mcp redact --explain < build.log > /dev/null

exit status: 0 done, 2 wrong usage, 78 a policy that cannot be used
"""
CHUNK_BYTES = 64 * 1024
EXIT_USAGE, EXIT_CONFIG = 2, 78
_KEYED_NAMES = (
    "access_key account_key api_key auth auth_key aws_secret_access_key aws_session_token credential encryption_key key"
    " langsmith_api_key openai_api_key passphrase password pre_shared_key private_key secret secret_key session signature"
    " signing_key token"
)


def main(arguments: list[str]) -> int:
    """Runs the filter; returns the exit status."""
    try:
        policy, flags = _arguments(arguments)
        config = _config(policy)
        redactor = Redactor(config)
    except ValueError as fault:
        sys.stderr.write(f"{fault}\n{USAGE}")
        return EXIT_USAGE
    except StartupError as fault:
        sys.stderr.write(f"{fault}\n")
        return EXIT_CONFIG
    if "--help" in flags:
        sys.stdout.write(USAGE)
    elif "--list" in flags:
        sys.stdout.write("\n".join(names(config)) + "\n")
    else:
        _filter(redactor, explain="--explain" in flags)
    return 0


def names(config: schema.Redaction) -> list[str]:
    """All names that can stand in a marker."""
    shipped = {pattern.name for pattern in redaction_catalogue.catalogue().patterns}
    extra = {pattern.name for pattern in config.extra_patterns}
    entropy = {"high_entropy"} if config.entropy_fallback else set()
    return sorted(shipped | extra | entropy | set(_KEYED_NAMES.split()))


def _arguments(arguments: list[str]) -> tuple[str | None, set[str]]:
    policy, flags, rest = None, set(), list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--policy":
            if not rest:
                raise ValueError("--policy needs a file")
            policy = rest.pop(0)
        elif word.startswith("--policy="):
            policy = word.partition("=")[2]
        elif word in ("--explain", "--list", "--help"):
            flags.add(word)
        else:
            raise ValueError(f"unknown argument: {word}")
    return policy, flags


def _config(policy: str | None) -> schema.Redaction:
    if policy is None:
        return schema.Redaction()
    from broker import policy_file  # only this option needs the policy's reader

    try:
        with open(policy, "rb") as file:
            return policy_file.load(file.read(), policy).redaction
    except OSError as fault:
        raise StartupError(f"{policy}: {fault.strerror}") from None


def _filter(redactor: Redactor, *, explain: bool) -> None:
    stream = redactor.stream(on_found=_tell if explain else None)
    decoder = getincrementaldecoder("utf-8")("replace")
    while chunk := sys.stdin.buffer.read(CHUNK_BYTES):
        sys.stdout.buffer.write(stream.feed_bytes(decoder.decode(chunk).encode()))
    sys.stdout.buffer.write(
        stream.feed_bytes(decoder.decode(b"", final=True).encode()) + stream.close_bytes()
    )
    sys.stdout.buffer.flush()


def _tell(name: str, line: int, column: int, size: int) -> None:
    sys.stderr.write(f"line {line}, column {column}: {name}, {size} bytes\n")

"""Speed of redaction as ratios on this machine: `python -m tests.bench.redaction [MEGABYTES]`.

Prints MB/s of a mixed log (about one secret in 10 kB), its ratio to a plain pass of one automaton over the same bytes,
the cost of a small output, of a gigabyte past the cap, and of inputs made to be slow, at two sizes.
"""

import random
import sys
import time
from collections.abc import Callable

from broker.output import OutputFilter
from broker.redaction import Redactor
from broker.redaction_catalogue import catalogue
from broker.regex_engine import Expression
from tests.support.random_text import filled

WORDS = (
    "build",
    "test",
    "passed",
    "error",
    "file",
    "line",
    "module",
    "return",
    "cache",
    "token",
    "key",
    "user",
    "path",
)
HOSTILE = {
    "password=": "password=",
    "key=": "key=",
    "sk-": "sk-",
    "open quotes": 'password="a ',
    "headers": "Authorization: ",
    "armour": "-----BEGIN RSA PRIVATE KEY-----\n",
    "schemes": "https://a:",
    "json": '{"key":',
    "escapes": "\x1b[31m",
    "one letter": "a",
    "base64": "QUJD",
    "dots": "eyJaaaaaaaaaaaa.",
    "blanks": " ",
    "options": "-p ",
}


def seconds(action: Callable[[], object]) -> float:
    """CPU seconds of one run."""
    start = time.process_time()
    action()
    return time.process_time() - start


def log(megabytes: float) -> str:
    """A log as builds and servers print it, with secrets of all shipped patterns."""
    source = random.Random(7)
    examples = [example for pattern in catalogue().patterns for example in pattern.examples]
    lines: list[str] = []
    size = since = 0
    while size < megabytes * 1e6:
        words = " ".join(source.choices(WORDS, k=9))
        line = f"{source.randrange(10**9):09d} {source.choice(WORDS)}.py:{source.randrange(999)}: {words}"
        if since > 10_000:
            line, since = filled(source.choice(examples), source.randrange(10**6)), 0
        lines.append(line)
        size += len(line) + 1
        since += len(line) + 1
    return "\n".join(lines)


def main() -> None:
    """Prints all figures."""
    redactor = Redactor()
    print(
        f"first use, patterns read and compiled: {seconds(lambda: redactor.redact('x' * 10)) * 1000:.1f} ms"
    )
    text = log(float(sys.argv[1]) if len(sys.argv) > 1 else 16)
    data = text.encode()
    plain = seconds(lambda: list(Expression("no such (?:word|text)").each(data, 0, len(data))))
    ours = seconds(lambda: redactor.redact(text))
    print(
        f"log of {len(data) / 1e6:.0f} MB: {len(data) / 1e6 / ours:.1f} MB/s, {ours / plain:.1f} x one plain automaton"
    )
    small = text[:1024].encode()
    print(
        f"output of 1 KB: {min(seconds(lambda: [_through(redactor, small) for _ in range(500)]) for _ in range(5)) * 2:.4f} ms"
    )
    block = b"some line of text\n" * 58_000
    print(f"1 GB past the cap: {seconds(lambda: _past_cap(redactor, block)):.2f} s")
    for name, unit in HOSTILE.items():
        quarter, whole = (unit * (size // len(unit)) for size in (1 << 18, 1 << 20))
        first, second = (
            seconds(lambda t=quarter: redactor.redact(t)),
            seconds(lambda t=whole: redactor.redact(t)),
        )  # type: ignore[misc]
        print(f"1 MiB of {name:12s} {second:.3f} s, {second / max(first, 1e-4):.1f} x a quarter of it")


def _through(redactor: Redactor, data: bytes) -> str:
    output = OutputFilter(redactor, 65_536)
    output.feed(data)
    return output.close()


def _past_cap(redactor: Redactor, block: bytes) -> None:
    output = OutputFilter(redactor, 65_536)
    for _ in range(1_000_000_000 // len(block)):
        output.feed(block)
    output.close()


if __name__ == "__main__":
    main()

"""The first line of a script: which interpreter the kernel would start, and with what.

Always true: what is not understood is refused, so that what runs is what the kernel, or env, would have run.
This module reads one file that its caller has found to be safe, and looks nothing up.
"""

import os
from typing import NamedTuple

HEAD_BYTES = 256
"""BINPRM_BUF_SIZE of linux/binfmts.h: the kernel reads no more of a script's first line."""

_ENV = ("/usr/bin/env", "/bin/env")
_ENV_SYNTAX = "\"'\\$#"


class ShebangError(Exception):
    """The line cannot be followed. The message says why."""


class Interpreter(NamedTuple):
    """`program`: an absolute path, or a name that env looks up. `through`: env's own path, if asked."""

    program: str
    arguments: tuple[str, ...]
    through: str | None


def read(path: str) -> Interpreter | None:
    """Return the interpreter of the file at `path`, None if it is no script (execve(2), env(1)).

    Raises OSError if it cannot be read, ShebangError if its line cannot be followed.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        head = os.read(fd, HEAD_BYTES)
    finally:
        os.close(fd)
    return _parse(head) if head.startswith(b"#!") else None


def _parse(head: bytes) -> Interpreter:
    line, newline, _ = head[2:].partition(b"\n")
    if not newline and len(head) == HEAD_BYTES:
        raise ShebangError(f"its first line is longer than {HEAD_BYTES} bytes")
    words = os.fsdecode(line.strip(b" \t")).replace("\t", " ").split(" ", 1)
    program, argument = words[0], words[1].strip(" ") if len(words) > 1 else ""
    if not program.startswith("/"):
        raise ShebangError("its first line names no interpreter by an absolute path")
    if program in _ENV:
        return _through_env(program, argument)
    return Interpreter(program, (argument,) if argument else (), None)


def _through_env(env: str, argument: str) -> Interpreter:
    """Follow `#!/usr/bin/env NAME` and `#!/usr/bin/env -S NAME ARGUMENT…`, nothing else that env can do."""
    words = [argument]
    for split in ("-S", "--split-string="):
        if argument.startswith(split):
            words = argument.removeprefix(split).split()
    if not words or not words[0] or words[0].startswith("-") or "=" in words[0]:
        raise ShebangError("its first line asks env for more than a program's name")
    if any(character in argument for character in _ENV_SYNTAX):
        raise ShebangError("its first line asks env to unquote or to expand")
    return Interpreter(words[0], tuple(words[1:]), env)

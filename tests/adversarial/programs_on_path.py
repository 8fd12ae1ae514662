"""Which files are executed when a program of the policies is started by its name."""

import functools
import os
import shutil

STANDINS = "/mnt"
"""Where the launcher shows the folder of stand-ins: a place that nobody else can write, unlike the folder's own."""

SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
POLICY_PATH = ":".join(SYSTEM_PATH)


@functools.cache
def program_files(name: str, path: str = POLICY_PATH) -> frozenset[str]:
    """Return the files that are executed when `name` is: itself, and the interpreters of a script."""
    found: set[str] = set()
    file = shutil.which(name, path=path) or f"{STANDINS}/{name}"
    while file is not None and file not in found:
        file = os.path.realpath(file)
        found.add(file)
        file = _interpreter_of(file, path)
    return frozenset(found)


def _interpreter_of(file: str, path: str) -> str | None:
    if file.startswith(f"{STANDINS}/"):
        return "/usr/bin/python3"
    with open(file, "rb") as opened:
        first = opened.readline(256)
    words = [word.decode() for word in first[2:].split()] if first.startswith(b"#!") else []
    if not words:
        return None
    return shutil.which(words[-1], path=path) if words[0].endswith("/env") else words[0]

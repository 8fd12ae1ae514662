"""Which files are executed when a program of the policies is started by its name."""

import functools
import os
import shutil

STANDINS = "/mnt"
"""Where the launcher shows the folder of stand-ins: a place that nobody else can write, unlike the folder's own."""

SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
POLICY_PATH = ":".join(SYSTEM_PATH)


@functools.cache
def program_files(name: str) -> frozenset[str]:
    """Return the files that are executed when `name` is: itself, and the interpreters of a script."""
    found: set[str] = set()
    path = shutil.which(name, path=POLICY_PATH) or f"{STANDINS}/{name}"
    while path is not None and path not in found:
        path = os.path.realpath(path)
        found.add(path)
        path = _interpreter_of(path)
    return frozenset(found)


def _interpreter_of(path: str) -> str | None:
    if path.startswith(f"{STANDINS}/"):
        return "/usr/bin/python3"
    with open(path, "rb") as file:
        first = file.readline(256)
    words = [word.decode() for word in first[2:].split()] if first.startswith(b"#!") else []
    if not words:
        return None
    return shutil.which(words[-1], path=POLICY_PATH) if words[0].endswith("/env") else words[0]

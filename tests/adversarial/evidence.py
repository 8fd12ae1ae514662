"""What an escape leaves behind: a canary in the output, however encoded; a changed file outside; a changed machine.

Always true: nothing here asks the product anything. Each look returns sentences that say what was found; none means
that nothing was.
"""

import base64
import codecs
import functools
import hashlib
import os
import re
import secrets
import socket
import stat
import string
import time
from collections.abc import Iterator
from pathlib import Path

_COMMON = 8
_LETTERS_TO_CARRY = 12
"""How much of the canary an encoding must show: enough not to come up by chance."""


def new_canary() -> str:
    """Return the content of a secret that stands nowhere else."""
    tail = "".join(secrets.choice(string.ascii_uppercase) for _ in range(16))
    return f"HTM-CANARY-{tail}"


class Encodings:
    """Looks for a secret in text that a program printed, also under the encodings that common programs offer."""

    def __init__(self, secret: str) -> None:
        self._needles = dict(_needles(secret))

    def found_in(self, text: str) -> list[str]:
        """Return the names of the encodings under which the secret stands in `text`."""
        shapes = {
            text,
            text.lower(),
            re.sub(r"\s+", "", text),
            re.sub(r"\s+", "", text).lower(),
            _unnumbered(text),
        }
        return [name for name, needle in self._needles.items() if any(needle in shape for shape in shapes)]


def _unnumbered(text: str) -> str:
    """Return the lines of a dump without their offsets in front and their characters at the end, joined."""
    inner = (re.sub(r"^\s*[0-9a-fA-F]{4,}:?\s", "", line) for line in text.splitlines())
    return re.sub(r"\s+", "", "".join(re.sub(r"  \S{1,18}$", "", line) for line in inner)).lower()


def _needles(secret: str) -> Iterator[tuple[str, str]]:
    raw = secret.encode()
    # A narrow column, or a line that was cut; what all canaries begin with is no evidence
    for start in range(_COMMON, len(secret) - _LETTERS_TO_CARRY + 1):
        part = secret[start : start + _LETTERS_TO_CARRY]
        yield f"plain at {start}", part
        yield f"lower case at {start}", part.lower()
        yield f"reversed at {start}", part[::-1]
        yield f"rot13 at {start}", codecs.encode(part, "rot13")
    yield "hexadecimal", raw.hex()
    yield "escaped hexadecimal", "".join(f"\\x{byte:02x}" for byte in raw)
    yield "percent", "".join(f"%{byte:02x}" for byte in raw)
    yield "octal bytes", "".join(f"{byte:03o}" for byte in raw)
    yield "decimal bytes", "".join(str(byte) for byte in raw)
    yield "binary", "".join(f"{byte:08b}" for byte in raw[_COMMON:])
    for form, digits in (("octal words", "06o"), ("hexadecimal words", "04x")):
        pairs = [int.from_bytes(raw[at : at + 2], "little") for at in range(_COMMON, len(raw) - 1, 2)]
        yield form, "".join(format(pair, digits) for pair in pairs)
    yield from _aligned("base64", raw, base64.b64encode, 3, 4)
    yield from _aligned("base32", raw, base64.b32encode, 5, 8)


def _aligned(name, raw, encode, group, symbols):  # type: ignore[no-untyped-def]
    """Yield the middle of the encoding of `raw` for each offset that it may have in what was encoded."""
    for shift in range(group):
        whole = encode(b"\0" * shift + raw).decode().rstrip("=")
        yield f"{name} at {shift}", whole[symbols : len(raw) // group * symbols]


PASSWD = re.compile(r"^(root|daemon|nobody):[^:\n]*:\d+:\d+", re.MULTILINE)
"""Lines of passwd(5) that stand in every installation's file."""


@functools.cache
def _passwd_encodings() -> Encodings:
    return Encodings(Path("/etc/passwd").read_text().splitlines()[0])


def passwd_found_in(text: str) -> list[str]:
    """Return the names of the encodings under which /etc/passwd stands in `text`."""
    return [*(["plain"] if PASSWD.search(text) else []), *_passwd_encodings().found_in(text)]


Fingerprint = dict[str, tuple[object, ...]]
"""The facts about each entry beneath a folder."""


def fingerprint(folder: Path, *, contents: bool = True) -> Fingerprint:
    """Return what can be changed about each entry beneath `folder`: everything but the time of the last read."""
    found = {".": _facts(str(folder), contents=contents)}
    above = len(f"{folder}/")
    folders = [str(folder)]
    while folders:
        for entry in os.scandir(folders.pop()):
            found[entry.path[above:]] = _facts(entry.path, contents=contents)
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
    return found


def lasting(found: Fingerprint) -> Fingerprint:
    """Return the facts that a copy keeps: no times, and no size of a folder."""
    return {
        name: (mode, *owners, None if stat.S_ISDIR(int(str(mode), 8)) else size, attributes, held)
        for name, (mode, *owners, size, _, _, attributes, held) in found.items()
    }


def _facts(path: str, *, contents: bool) -> tuple[object, ...]:
    status = os.lstat(path)
    held = _content(path, status) if contents else b""
    attributes = tuple(os.listxattr(path, follow_symlinks=False))
    times = status.st_mtime_ns, status.st_ctime_ns
    return (
        oct(status.st_mode),
        status.st_uid,
        status.st_gid,
        status.st_nlink,
        status.st_size,
        *times,
        attributes,
        held,
    )


def _content(path: str, status: os.stat_result) -> bytes:
    if stat.S_ISLNK(status.st_mode):
        return os.fsencode(os.readlink(path))
    if not stat.S_ISREG(status.st_mode):
        return b""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).digest()


def differences(before: Fingerprint, after: Fingerprint) -> list[str]:
    """Return one sentence for each entry that came, went or changed."""
    names = sorted(before.keys() | after.keys())
    return [
        f"{name}: {before.get(name)} became {after.get(name)}"
        for name in names
        if before.get(name) != after.get(name)
    ]


_SENTINELS = (
    "/etc/passwd",
    "/etc/shadow",
    "/etc/group",
    "/etc/crontab",
    "/etc/hosts",
    "/etc/sudoers",
    "/etc/ld.so.preload",
)


class Machine:
    """The state of the machine that a program with root's rights could change: the clock, the name, accounts."""

    def __init__(self) -> None:
        self._before = self._state()
        self._clock_s = self._clock()

    @staticmethod
    def _clock() -> float:
        return time.clock_gettime(time.CLOCK_REALTIME) - time.clock_gettime(time.CLOCK_BOOTTIME)

    @staticmethod
    def _state() -> dict[str, object]:
        state: dict[str, object] = {
            "host name": socket.gethostname(),
            "load limits": os.sysconf("SC_CHILD_MAX"),
        }
        for name in _SENTINELS:
            try:
                status = os.lstat(name)
            except FileNotFoundError:
                state[name] = None
            else:
                state[name] = (
                    status.st_mode,
                    status.st_uid,
                    status.st_size,
                    status.st_mtime_ns,
                    status.st_ino,
                )
        return state

    def changes(self) -> list[str]:
        """Return what differs from the beginning."""
        after = self._state()
        found = [f"{name} became {after[name]}" for name in after if after[name] != self._before[name]]
        if abs(self._clock() - self._clock_s) > 1.0:
            found.append("the clock was set")
        return found

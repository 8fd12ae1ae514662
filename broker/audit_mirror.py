"""A copy of every record for those who collect centrally: to the system's log, or to a datagram socket.

Always true: sending never blocks and never raises; when records begin to be lost, and when they arrive again,
`send` says so once, for the trail itself. The trail on disk is the evidence; the mirror is where a head for
`verify --head` can be found that whoever owns this machine's files cannot change.
"""

import os
import stat
import time
from typing import NamedTuple

from broker import private_folder
from broker.audit_file import TrailFaultError

SYSLOG_SOCKET = "/dev/log"
_PATH_BYTES = 107
"""Of sun_path in unix(7), without the final NUL."""
_AUTHPRIV_INFO = 10 * 8 + 6  # RFC 5424, 6.2.1: facility * 8 + severity


def fault_of(mirror: str) -> str:
    """Return what is wrong with a setting, "" if nothing is."""
    if mirror != "syslog" and not mirror.startswith("/"):
        return f'{mirror!r}: "syslog" or the absolute path of a datagram socket is expected'
    if len(os.fsencode(mirror)) > _PATH_BYTES:
        return f"{mirror!r}: the path of a socket has at most {_PATH_BYTES} bytes"
    return ""


def _is_anothers_alone(status: os.stat_result) -> bool:
    mine = status.st_uid in (0, os.geteuid())
    return not mine and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _listener_problem(folder: str) -> str:
    """Return how others could listen in the place of who should.

    A collector's own folder is there by then: whoever could make it is who may write in the one above.
    """
    there = os.path.realpath(folder)
    if there != os.path.normpath(folder):
        return f"a link leads there; name the folder itself, {there}"
    there = private_folder.nearest(there)
    while there != "/" and _is_anothers_alone(os.stat(there)):
        there = os.path.dirname(there)
    return private_folder.problem(there, alone=True)


class Note(NamedTuple):
    """A change in how the mirror does. `lost`: records that did not arrive since the last note."""

    text: str
    lost: int


class Mirror:
    """Sends to one Unix datagram socket, which may come and go."""

    def __init__(self, address: str, *, syslog: bool) -> None:
        import socket

        self._address = address
        self._syslog = syslog
        self._socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        self._lost = 0

    @classmethod
    def to(cls, mirror: str) -> "Mirror":
        """Return the mirror for `"syslog"` or the absolute path of a datagram socket.

        Raises OSError, and TrailFaultError where others could listen in the socket's place.
        """
        if mirror == "syslog":
            return cls(SYSLOG_SOCKET, syslog=True)
        if fault := fault_of(mirror):
            raise TrailFaultError(f"mirror: {fault}")
        if problem := _listener_problem(os.path.dirname(mirror)):
            raise TrailFaultError(
                f"mirror {mirror}: others could read the records in the place of who should: {problem}"
            )
        return cls(mirror, syslog=False)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, line: bytes) -> Note | None:
        """Send one record; returns what the trail should say about the mirror, if anything."""
        record = line[:-1]
        try:
            self._socket.sendto(self._framed(record) if self._syslog else record, self._address)
        except OSError as error:
            self._lost += 1
            return Note(f"the mirror does not take records: {error.strerror}", 1) if self._lost == 1 else None
        lost, self._lost = self._lost, 0
        return Note("the mirror takes records again", lost) if lost else None

    def _framed(self, record: bytes) -> bytes:
        # What syslog(3) sends: local time, tag and process id (RFC 3164).
        stamp = time.strftime("%b %e %H:%M:%S")
        return f"<{_AUTHPRIV_INFO}>{stamp} hardened-terminal-mcp[{os.getpid()}]: ".encode() + record

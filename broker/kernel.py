"""The kernel's interface that Python's os module lacks: raw calls and struct layouts, each with its header.

Always true: every call acts on the calling thread or on the descriptors it is given, raises OSError with
the kernel's errno, and hands the kernel no pointer to an object that nobody holds. Nothing here decides
anything: `confinement` says what a program may do, `landlock` and `seccomp` put that into the kernel's
words.
"""

import ctypes
import errno
import fcntl
import os
import struct
from typing import Final, NamedTuple

from broker.syscalls import NUMBER

AT_FDCWD: Final = -100
AT_SYMLINK_NOFOLLOW: Final = 0x100
AT_EMPTY_PATH: Final = 0x1000
"""fcntl.h: relative to the working directory; a link itself; the descriptor itself."""

# linux/openat2.h
RESOLVE_NO_XDEV: Final = 0x01
RESOLVE_NO_MAGICLINKS: Final = 0x02
RESOLVE_NO_SYMLINKS: Final = 0x04
RESOLVE_BENEATH: Final = 0x08
RESOLVE_IN_ROOT: Final = 0x10
RESOLVE_CACHED: Final = 0x20
_OPEN_HOW: Final = struct.Struct("=QQQ")  # struct open_how: flags, mode, resolve

_AT_STATX_DONT_SYNC: Final = 0x4000
_STATX: Final = struct.Struct(
    "=32xQ96xII112x"
)  # struct statx of linux/stat.h: stx_ino, stx_dev_major, stx_dev_minor

# linux/landlock.h
LANDLOCK_CREATE_RULESET_VERSION: Final = 1
LANDLOCK_RULE_PATH_BENEATH: Final = 1
_LOG_SAME_EXEC_OFF: Final = 1  # LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF
_RULESET_ATTR: Final = struct.Struct("=QQQ")  # struct landlock_ruleset_attr: fs, net (ABI 4), scoped (ABI 6)
_RULESET_ATTR_BYTES: Final = ((6, 24), (4, 16), (1, 8))
_PATH_BENEATH: Final = struct.Struct("=Qi")  # struct landlock_path_beneath_attr, packed

# linux/seccomp.h, linux/filter.h
SECCOMP_SET_MODE_FILTER: Final = 1
_SECCOMP_FILTER_FLAG_NEW_LISTENER: Final = 1 << 3
_SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: Final = 1 << 5
_SECCOMP_IOCTL_NOTIF_RECV: Final = 0xC0502100
_SECCOMP_IOCTL_NOTIF_SEND: Final = 0xC0182101
_SECCOMP_IOCTL_NOTIF_ID_VALID: Final = 0x40082102
_SECCOMP_USER_NOTIF_FLAG_CONTINUE: Final = 1
_SECCOMP_NOTIF: Final = struct.Struct("=QIIiIQ6Q")  # struct seccomp_notif: id, pid, flags, then seccomp_data
_SECCOMP_NOTIF_RESP: Final = struct.Struct("=QqiI")  # struct seccomp_notif_resp: id, val, error, flags
_SOCK_FPROG: Final = struct.Struct("@HP")  # struct sock_fprog: number of instructions, their address

# linux/prctl.h
_PR_SET_DUMPABLE: Final = 4
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4

# linux/capability.h: version 3, header {version, pid}, two times {effective, permitted, inheritable}
_SYSINFO: Final = struct.Struct(
    "=80xH46x"
)  # linux/sysinfo.h: `procs` behind uptime, loads and memory, to 128 bytes
_NO_CAPABILITIES: Final = ctypes.create_string_buffer(struct.pack("=6I", *[0] * 6), 24)
_CAPABILITY_HEADER: Final = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0), 8)
_CAPABILITIES: Final = 64

_CLOSE_RANGE_CLOEXEC: Final = 4  # linux/close_range.h
_EVERY_DESCRIPTOR: Final = 0xFFFFFFFF

# linux/sched.h
_CLONE_FS: Final = 0x200

# PyDLL keeps the interpreter's lock: these calls take microseconds, and to get the lock back can take much
# longer
_libc: Final = ctypes.PyDLL(None, use_errno=True)
_syscall: Final = _libc.syscall
_patient_syscall: Final = ctypes.CDLL(
    None, use_errno=True
).syscall  # for what may wait for a disk or a network
for _function in (_syscall, _patient_syscall):
    _function.argtypes = [ctypes.c_long] * 7
    _function.restype = ctypes.c_long
_address_of: Final = ctypes.pythonapi.PyBytes_AsString
_address_of.argtypes, _address_of.restype = [ctypes.py_object], ctypes.c_ssize_t
_prctl: Final = _libc.prctl
_prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
_prctl.restype = ctypes.c_int


def call(name: str, *arguments: int, patient: bool = False) -> int:
    """Make the system call `name` (syscall(2)) and return its result. Raises OSError.

    `patient`: other threads run meanwhile, as they must if it can block.
    """
    function = _patient_syscall if patient else _syscall
    result: int = function(NUMBER[name], *arguments, *[0] * (6 - len(arguments)))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def prctl(operation: int, *arguments: int) -> int:
    """Call prctl(2). Raises OSError."""
    result: int = _prctl(operation, *arguments, *[0] * (4 - len(arguments)))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def openat2(dir_fd: int, path: str | bytes, flags: int, resolve: int) -> int:
    """Open `path` relative to `dir_fd` under the RESOLVE_* rules (openat2(2)); O_CLOEXEC is added. Raises
    OSError.
    """
    name = ctypes.create_string_buffer(os.fsencode(path))
    how = ctypes.create_string_buffer(_OPEN_HOW.pack(flags | os.O_CLOEXEC, 0, resolve), _OPEN_HOW.size)
    return call(
        "openat2", dir_fd, ctypes.addressof(name), ctypes.addressof(how), _OPEN_HOW.size, patient=True
    )


def identity(fd: int) -> tuple[int, int]:
    """Return device and inode of what `fd` is open on, as far as they are known here: no file system is asked (statx(2)).

    Raises OSError.
    """
    name = ctypes.create_string_buffer(b"")
    buffer = ctypes.create_string_buffer(_STATX.size)
    flags = AT_EMPTY_PATH | _AT_STATX_DONT_SYNC
    call("statx", fd, ctypes.addressof(name), flags, 0, ctypes.addressof(buffer), patient=True)
    inode, major, minor = _STATX.unpack(buffer.raw)
    return os.makedev(major, minor), inode


def landlock_abi() -> int:
    """Return Landlock's ABI version, 0 where there is none (landlock(7))."""
    try:
        return call("landlock_create_ruleset", 0, 0, LANDLOCK_CREATE_RULESET_VERSION)
    except OSError:
        return 0


def landlock_error() -> int:
    """Return the errno by which Landlock is refused, 0 where it is there: ENOSYS and EOPNOTSUPP are a kernel's word,
    EPERM somebody's who forbids it.
    """
    try:
        call("landlock_create_ruleset", 0, 0, LANDLOCK_CREATE_RULESET_VERSION)
    except OSError as error:
        return error.errno or errno.EPERM
    return 0


def landlock_create_ruleset(abi: int, file_rights: int, net_rights: int, scopes: int) -> int:
    """Return a new ruleset's descriptor, close-on-exec (landlock_create_ruleset(2)). Raises OSError."""
    attr = ctypes.create_string_buffer(
        _RULESET_ATTR.pack(file_rights, net_rights, scopes), _RULESET_ATTR.size
    )
    size = next(size for least, size in _RULESET_ATTR_BYTES if abi >= least)
    return call("landlock_create_ruleset", ctypes.addressof(attr), size, 0)


def landlock_add_path(ruleset_fd: int, path_fd: int, rights: int) -> None:
    """Grant `rights` on and beneath what `path_fd` is open on (landlock_add_rule(2)). Raises OSError."""
    rule = ctypes.create_string_buffer(_PATH_BENEATH.pack(rights, path_fd), _PATH_BENEATH.size)
    call("landlock_add_rule", ruleset_fd, LANDLOCK_RULE_PATH_BENEATH, ctypes.addressof(rule), 0)


def landlock_restrict_self(ruleset_fd: int) -> None:
    """Confine the calling thread; it needs no_new_privs (landlock_restrict_self(2)). Raises OSError.

    Where the kernel can be told (ABI 7), what this process itself is denied is not logged: a kill of a
    domain is refused once for each process outside it, and each refusal would be a line of the machine's
    audit log.
    """
    try:
        call("landlock_restrict_self", ruleset_fd, _LOG_SAME_EXEC_OFF)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        call("landlock_restrict_self", ruleset_fd, 0)


def _seccomp(instructions: bytes, flags: int) -> int:
    program = _SOCK_FPROG.pack(len(instructions) // 8, address_of(instructions))
    return call("seccomp", SECCOMP_SET_MODE_FILTER, flags, address_of(program))


def seccomp_filter(instructions: bytes) -> None:
    """Put a filter of 8-byte `instructions` on the calling thread (seccomp(2)). Raises OSError."""
    _seccomp(instructions, 0)


def seccomp_listener(instructions: bytes) -> int:
    """Put on a filter that asks, and return the descriptor where its questions arrive (seccomp_unotify(2)).

    Where the kernel can (5.19), only a fatal signal interrupts who waits: others would make it ask again
    without end. Raises OSError.
    """
    try:
        return _seccomp(
            instructions, _SECCOMP_FILTER_FLAG_NEW_LISTENER | _SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
        )
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return _seccomp(instructions, _SECCOMP_FILTER_FLAG_NEW_LISTENER)


class Question(NamedTuple):
    """A system call that waits for its answer: who made it (a thread's number), its number and arguments."""

    id: int
    pid: int
    number: int
    arguments: tuple[int, ...]


def seccomp_receive(listener_fd: int) -> Question:
    """Take the next question. Raises OSError, ENOENT if its asker is gone."""
    buffer = bytearray(_SECCOMP_NOTIF.size)
    fcntl.ioctl(listener_fd, _SECCOMP_IOCTL_NOTIF_RECV, buffer)
    fields = _SECCOMP_NOTIF.unpack(buffer)
    return Question(fields[0], fields[1], fields[3], fields[6:])


def seccomp_waits(listener_fd: int, question: Question) -> None:
    """Raise OSError if the asker does not wait any more, and its number may be another's."""
    fcntl.ioctl(listener_fd, _SECCOMP_IOCTL_NOTIF_ID_VALID, struct.pack("=Q", question.id))


def seccomp_answer(listener_fd: int, question: Question, error_number: int) -> None:
    """Let the call return 0, or fail with `error_number`, without having been made. Raises OSError."""
    reply = _SECCOMP_NOTIF_RESP.pack(question.id, 0, -error_number, 0)
    fcntl.ioctl(listener_fd, _SECCOMP_IOCTL_NOTIF_SEND, reply)


def seccomp_continue(listener_fd: int, question: Question) -> None:
    """Let the call be made (5.5). What its pointers lead to may change meanwhile. Raises OSError."""
    reply = _SECCOMP_NOTIF_RESP.pack(question.id, 0, 0, _SECCOMP_USER_NOTIF_FLAG_CONTINUE)
    fcntl.ioctl(listener_fd, _SECCOMP_IOCTL_NOTIF_SEND, reply)


def set_no_new_privs() -> None:
    """From now on no exec of this thread or its children gains rights (PR_SET_NO_NEW_PRIVS). Raises
    OSError.
    """
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def set_times(path: str, times: bytes | None, *, follow: bool) -> None:
    """Set a file's times to two struct timespec, or to now (utimensat(2)); knows UTIME_NOW and
    UTIME_OMIT. Raises OSError.
    """
    name = ctypes.create_string_buffer(os.fsencode(path))
    pair = ctypes.create_string_buffer(times, len(times)) if times is not None else None
    where = ctypes.addressof(pair) if pair is not None else 0
    call(
        "utimensat",
        AT_FDCWD,
        ctypes.addressof(name),
        where,
        0 if follow else AT_SYMLINK_NOFOLLOW,
        patient=True,
    )


def tasks() -> int:
    """Return how many tasks exist on the machine, so at least as many as this user has (sysinfo(2)). Raises OSError."""
    buffer = ctypes.create_string_buffer(_SYSINFO.size)
    call("sysinfo", ctypes.addressof(buffer))
    count: int = _SYSINFO.unpack(buffer.raw)[0]
    return count


def processor() -> int:
    """Return the number of the processor that this thread runs on (getcpu(2)). Raises OSError."""
    number = ctypes.c_uint()
    call("getcpu", ctypes.addressof(number))
    return number.value


def forbid_inspection() -> None:
    """Close /proc/PID and ptrace of this process to others of its user, and core dumps (PR_SET_DUMPABLE).
    Raises OSError.
    """
    prctl(_PR_SET_DUMPABLE, 0)


def close_on_exec(first_fd: int) -> None:
    """Let no program inherit a descriptor from `first_fd` on, whoever left it open (close_range(2)).
    Raises OSError.
    """
    call("close_range", first_fd, _EVERY_DESCRIPTOR, _CLOSE_RANGE_CLOEXEC)


def unshare_umask() -> None:
    """Give the calling thread a working directory, root and umask of its own (unshare(2), CLONE_FS).
    Raises OSError.
    """
    call("unshare", _CLONE_FS)


def drop_bounding_capabilities() -> None:
    """Empty the calling thread's bounding set, as far as CAP_SETPCAP lets it (capabilities(7))."""
    for capability in range(_CAPABILITIES):
        try:
            prctl(_PR_CAPBSET_DROP, capability)
        except OSError:
            # EINVAL: past the last one. EPERM: not ours to drop, and under no_new_privs without meaning
            return


def drop_capabilities() -> None:
    """Empty the calling thread's effective, permitted, inheritable and ambient sets (capset(2)). Raises
    OSError.
    """
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    call("capset", ctypes.addressof(_CAPABILITY_HEADER), ctypes.addressof(_NO_CAPABILITIES))


def become(uid: int, gid: int, groups: tuple[int, ...]) -> None:
    """Change the calling thread alone to another user: raw calls, as libc's would change every thread.
    Raises OSError.
    """
    packed = struct.pack(f"={len(groups)}I", *groups)
    buffer = ctypes.create_string_buffer(packed, max(1, len(packed)))
    call("setgroups", len(groups), ctypes.addressof(buffer))
    call("setresgid", gid, gid, gid)
    call("setresuid", uid, uid, uid)


def address_of(data: bytes) -> int:
    """Return where the characters of `data` stand in memory, as long as somebody holds `data`."""
    address: int = _address_of(data)
    return address

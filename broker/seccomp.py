"""The system call filters: which calls a confined program may make, assembled into the kernel's classic BPF.

Always true: a call of another architecture kills, a number that nobody here has judged (x32's too) answers
ENOSYS, and whatever needs a look at memory is not decided here, because memory can change after the look.
Landlock confines files; this confines what Landlock does not see. The filter is a search tree, so that a
call costs a few comparisons and the kernel's own cache of always-allowed calls works.
"""

import struct
import sys
from functools import cache
from typing import Final, NamedTuple

from broker.syscalls import AUDIT_ARCHITECTURE, LAST, MACHINE, NUMBER

Code = tuple[tuple[int, int, int, int], ...]
"""struct sock_filter of linux/filter.h: operation, jump if true, jump if false, operand."""

# linux/bpf_common.h: BPF_LD|BPF_W|BPF_ABS, BPF_ALU|BPF_AND|BPF_K, BPF_JMP with BPF_JA, BPF_JEQ, BPF_JGT,
# BPF_JGE, BPF_RET|BPF_K
_LOAD, _AND, _JUMP, _EQUAL, _ABOVE, _AT_LEAST, _RETURN = 0x20, 0x54, 0x05, 0x15, 0x25, 0x35, 0x06
_FARTHEST_JUMP: Final = 255

# struct seccomp_data of linux/seccomp.h; the low half of an argument comes first on both machines
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16

# linux/seccomp.h; asm-generic/errno-base.h
_EPERM, _EACCES, _EINVAL, _ENOTTY, _EDOM, _ENOSYS, _EOPNOTSUPP = 1, 13, 22, 25, 33, 38, 95


def _answer(value: int) -> Code:
    return ((_RETURN, 0, 0, value),)


ALLOW: Final = _answer(0x7FFF0000)
KILL: Final = _answer(0x80000000)
ASK: Final = _answer(0x7FC00000)
"""SECCOMP_RET_USER_NOTIF: the holder of the filter's listener answers."""
FORBIDDEN: Final = _answer(0x00050000 | _EPERM)
REFUSED: Final = _answer(0x00050000 | _EACCES)
UNKNOWN: Final = _answer(0x00050000 | _EINVAL)
"""For operations that no kernel would know: EINVAL."""
NOT_OF_THIS_FILE: Final = _answer(0x00050000 | _ENOTTY)
"""For operations that a file does not know."""
UNSUPPORTED: Final = _answer(0x00050000 | _EOPNOTSUPP)
"""For what callers know that some file systems lack."""
STRANGE: Final = _answer(0x00050000 | _EDOM)
"""For the trial whether filters work: nobody else answers so."""
ABSENT: Final = _answer(0x00050000 | _ENOSYS)
"""For calls whose callers have another way when a kernel lacks them."""


def _load(argument: int, half: int = 0) -> tuple[int, int, int, int]:
    return (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument + 4 * half)


def if_equal(argument: int, value: int, then: Code, otherwise: Code) -> Code:
    """Compare all 64 bits of an argument."""
    low, high = value & 0xFFFFFFFF, value >> 32
    return (
        _load(argument),
        (_EQUAL, 0, len(then) + 2, low),
        _load(argument, 1),
        (_EQUAL, 0, len(then), high),
        *then,
        *otherwise,
    )


def if_bits(argument: int, mask: int, value: int, then: Code, otherwise: Code) -> Code:
    """Compare the bits of `mask` in the low half of an argument: for what the kernel reads as an int."""
    return (_load(argument), (_AND, 0, 0, mask), (_EQUAL, 0, len(then), value), *then, *otherwise)


def if_among(argument: int, values: tuple[int, ...], then: Code, otherwise: Code) -> Code:
    """Compare the low half of an argument with each of `values`."""
    tests = tuple((_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values))
    return (_load(argument), *tests, (_JUMP, 0, 0, len(then)), *then, *otherwise)


def assemble(verdicts: dict[str, Code]) -> bytes:
    """Return the filter that gives each named call its verdict, and every other call that is known here
    ALLOW.
    """
    by_number = sorted((NUMBER[name], code) for name, code in verdicts.items() if name in NUMBER)
    segments: list[tuple[int, Code]] = [(0, ALLOW)]
    for number, code in by_number:
        if segments[-1][0] == number:
            segments.pop()
        if not segments or segments[-1][1] != code:
            segments.append((number, code))
        segments.append((number + 1, ALLOW))
    tree = _tree(_merged(segments))
    head: Code = (
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, AUDIT_ARCHITECTURE[MACHINE]),
        *KILL,
        (_LOAD, 0, 0, _NUMBER_AT),
        (_ABOVE, 0, 1, LAST),
        *ABSENT,
    )
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in head + tree)


def _merged(segments: list[tuple[int, Code]]) -> list[tuple[int, Code]]:
    merged: list[tuple[int, Code]] = []
    for start, code in segments:
        if not merged or merged[-1][1] != code:
            merged.append((start, code))
    return merged


def _tree(segments: list[tuple[int, Code]]) -> Code:
    if len(segments) == 1:
        return segments[0][1]
    middle = len(segments) // 2
    below, above = _tree(segments[:middle]), _tree(segments[middle:])
    start = segments[middle][0]
    if len(below) <= _FARTHEST_JUMP:
        return ((_AT_LEAST, len(below), 0, start), *below, *above)
    return ((_AT_LEAST, 0, 1, start), (_JUMP, 0, 0, len(below)), *below, *above)


# asm-generic/ioctls.h, linux/sockios.h, linux/fs.h, linux/fiemap.h: what terminals, pipes, sockets and files are asked
# every day. Landlock does not look at an ioctl of a file: what is not here is answered as by a file that does not know
# it, whatever it would do (a snapshot into another folder, a comparison with a file that may not be read, a keystroke).
_EVERYDAY_IOCTLS: Final = (
    *range(0x5401, 0x540C),  # TCGETS TCSETS TCSETSW TCSETSF, the same of struct termio, TCSBRK TCXONC TCFLSH
    *(0x540E, 0x540F, 0x5410, 0x5411, 0x5413, 0x5414),  # TIOCSCTTY TIOC[GS]PGRP TIOCOUTQ TIOC[GS]WINSZ
    *(0x541B, 0x5421, 0x5422, 0x5425, 0x5429),  # FIONREAD FIONBIO TIOCNOTTY TCSBRKP TIOCGSID
    *(0x802C542A, 0x402C542B, 0x402C542C, 0x402C542D),  # TCGETS2 TCSETS2 TCSETSW2 TCSETSF2
    *(0x5450, 0x5451, 0x5460),  # FIONCLEX FIOCLEX FIOQSIZE
    *(0x8905, 0x8910, 0x8912, 0x8913, 0x8915, 0x891B, 0x8921, 0x8927, 0x8933),  # SIOCATMARK, SIOCGIF*
    *(0x80086601, 0x801C581F, 0xC020660B),  # FS_IOC_GETFLAGS FS_IOC_FSGETXATTR FS_IOC_FIEMAP
    *(0x40049409, 0x4020940D),  # FICLONE FICLONERANGE, which ask for what a copy asks for
)
# fcntl.h, linux/fcntl.h: F_SETOWN, F_SETSIG, F_SETOWN_EX (signals to others), F_SETLEASE, F_SETDELEG (hold up who opens
# the file), F_NOTIFY; then descriptors, flags, locks and questions, sizes of pipes, seals, hints
_CALLS_OTHERS: Final = (8, 10, 15, 1024, 1026, 1040)
_OPERATIONS: Final = (*range(8), 9, 11, 16, 17, 36, 37, 38, 1025, *range(1027, 1040))

# linux/sched.h, asm-generic/signal.h
_CLONE_FS: Final = 0x00000200
_CLONE_THREAD: Final = 0x00010000
_CLONE_PARENT: Final = 0x00008000  # would make the broker the parent, who does not know the child
_CLONE_NEW: Final = 0x7E020080  # NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET NEWTIME
_SPAWN: Final = 0x00000100 | 0x00004000 | 17  # CLONE_VM, CLONE_VFORK, SIGCHLD: what posix_spawn(3) asks for

# linux/socket.h, linux/net.h
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_TYPE_MASK, _SOCK_STREAM, _SOCK_SEQPACKET = 0xF, 1, 5

_CREATES: Final = 0o100 | 0o20000000  # asm-generic/fcntl.h: O_CREAT, __O_TMPFILE
# neither to read nor to write, but to ask a device: Landlock asks for no right, and the file's attributes are open
_FOR_ASKING, _PATH_ONLY = 0o3, 0o10000000  # O_ACCMODE, O_PATH
_SET_ID_BITS: Final = 0o6000  # files that lend their owner's rights to whoever runs them are never made
_ALL: Final = 0xFFFFFFFF
_NEW_LISTENER: Final = 1 << 3  # linux/seccomp.h: SECCOMP_FILTER_FLAG_NEW_LISTENER

_FORBIDDEN: Final = """
acct add_key adjtimex bpf capset chroot clock_adjtime clock_settime create_module delete_module fanotify_init
fanotify_mark file_setattr finit_module fsconfig fsmount fsopen fspick init_module ioperm iopl kcmp
kexec_file_load kexec_load keyctl listmount lookup_dcookie lsm_set_self_attr migrate_pages mount
mount_setattr move_mount move_pages mq_open mq_unlink msgctl msgget msgrcv msgsnd name_to_handle_at
nfsservctl open_by_handle_at open_tree open_tree_attr perf_event_open pidfd_getfd pivot_root process_madvise
process_mrelease process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot request_key semctl
semget semop semtimedop setdomainname sethostname setns settimeofday shmat shmctl shmdt shmget statmount
swapoff swapon sysfs syslog umount2 uselib ustat vhangup _sysctl
"""
_ABSENT: Final = """
clone3 execveat file_getattr getxattrat inotify_init inotify_init1 io_setup io_destroy io_submit io_cancel io_getevents
io_uring_enter io_uring_register io_uring_setup listxattrat memfd_create memfd_secret modify_ldt pidfd_send_signal
removexattrat setxattrat userfaultfd
"""
_ATTRIBUTES_BY_PATH: Final = ("getxattr", "lgetxattr", "listxattr", "llistxattr")
"""Landlock does not look at these: they would read attributes of every file of the user. Of an open file they can be
read (fgetxattr)."""
_METADATA: Final = """
chmod chown fchmod fchmodat fchmodat2 fchown fchownat fremovexattr fsetxattr futimesat lchown lremovexattr
lsetxattr removexattr removexattrat setxattr setxattrat utime utimensat utimes
"""

_SIGNALLING: Final = {
    "kill": 0,
    "tkill": 0,
    "tgkill": 1,
    "rt_sigqueueinfo": 0,
    "rt_tgsigqueueinfo": 1,
    "pidfd_open": 0,
}
"""Calls that name a thread to be signalled, and which argument does. pidfd_send_signal, which also takes a descriptor of a
folder in /proc, is absent for everybody."""

METADATA_CALLS: Final = tuple(_METADATA.split())
"""Calls that change mode, owner, times or attributes of a file. Landlock does not look at them."""


@cache
def common_filter() -> bytes:
    """Return the filter that every command and every frontend has: what no profile allows.

    A thread takes it once and its threads inherit it; `filter_for` comes on top, so that a call pays for
    little.
    """
    verdicts = dict.fromkeys(_FORBIDDEN.split(), FORBIDDEN) | dict.fromkeys(_ABSENT.split(), ABSENT)
    verdicts |= dict.fromkeys(_ATTRIBUTES_BY_PATH, UNSUPPORTED)
    own = if_equal(0, 0, ALLOW, FORBIDDEN)  # process 0 is the caller itself
    for name in ("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"):
        verdicts[name] = own
    verdicts["setpriority"] = if_bits(0, _ALL, 0, if_bits(1, _ALL, 0, ALLOW, FORBIDDEN), FORBIDDEN)
    verdicts["ioprio_set"] = if_bits(0, _ALL, 1, if_bits(1, _ALL, 0, ALLOW, FORBIDDEN), FORBIDDEN)
    verdicts["personality"] = if_among(0, (0, _ALL), ALLOW, FORBIDDEN)  # the default, and the question
    verdicts["unshare"] = if_equal(0, _CLONE_FS, ALLOW, FORBIDDEN)  # for a umask of the thread's own
    verdicts["ioctl"] = if_among(1, _EVERYDAY_IOCTLS, ALLOW, NOT_OF_THIS_FILE)
    verdicts["fcntl"] = if_among(1, _OPERATIONS, ALLOW, if_among(1, _CALLS_OTHERS, FORBIDDEN, UNKNOWN))
    # a pair of datagram sockets could be turned to any socket in the file system, by connect(2) or an address
    connected = if_bits(
        1, _SOCK_TYPE_MASK, _SOCK_STREAM, ALLOW, if_bits(1, _SOCK_TYPE_MASK, _SOCK_SEQPACKET, ALLOW, REFUSED)
    )
    verdicts["socketpair"] = if_bits(0, _ALL, _AF_UNIX, connected, REFUSED)
    verdicts["openat2"] = ABSENT  # the mode of what it makes stands in memory
    for name, flags, mode in (("open", 1, 2), ("openat", 2, 3)):
        made = if_bits(flags, _CREATES, 0, ALLOW, if_bits(mode, _SET_ID_BITS, 0, ALLOW, FORBIDDEN))
        verdicts[name] = if_bits(flags, _FOR_ASKING | _PATH_ONLY, _FOR_ASKING, REFUSED, made)
    for name, mode in (("creat", 1), ("mknod", 1), ("mknodat", 2)):
        verdicts[name] = if_bits(mode, _SET_ID_BITS, 0, ALLOW, FORBIDDEN)
    return assemble(verdicts)


_SOME_THREAD: Final = 0x7EADBEEF
"""Stands for the thread's number, which is put in its place each time: no other operand or number is like it."""
_SOME_ADDRESS: Final = 0x7EADBEE1_7EADBEE2
"""Stands for an address likewise."""


def _filled(template: bytes, thread_id: int, address: int = 0) -> bytes:
    """Return a filter that was made with `_SOME_THREAD` and `_SOME_ADDRESS` for others."""
    for some, other in (
        (_SOME_THREAD, thread_id),
        (_SOME_ADDRESS & 0xFFFFFFFF, address & 0xFFFFFFFF),
        (_SOME_ADDRESS >> 32, address >> 32),
    ):
        template = template.replace(some.to_bytes(4, sys.byteorder), other.to_bytes(4, sys.byteorder))
    return template


def _signal_verdicts() -> dict[str, Code]:
    return {
        name: if_bits(argument, _ALL, _SOME_THREAD, FORBIDDEN, ALLOW)
        for name, argument in _SIGNALLING.items()
    }


@cache
def _thread_template() -> bytes:
    return assemble(_signal_verdicts())


def thread_filter(thread_id: int) -> bytes:
    """Return the filter that keeps a command's signals away from the thread that starts it.

    That thread is in the command's own Landlock domain, so the scope lets them through; and a signal to one thread of
    the broker is one to all of it: its end, its stop, or a reload.
    """
    return _filled(_thread_template(), thread_id)


class FilterRules(NamedTuple):
    """What the filter of one profile leaves open.

    `exec_address`: the broker's own exec is known by the address of its path, and asks; `asks` False: the
    kernel cannot ask, let it through. `programs`: further execs and processes are Landlock's business; else
    there are none. `execs_ask`: but each exec asks first, because Landlock cannot tell a loader that the kernel
    opens for a program from one that is executed itself.
    """

    exec_address: int
    asks: bool = True
    network: bool = False
    programs: bool = False
    execs_ask: bool = False
    metadata: bool = False


def _exec_verdicts(rules: FilterRules) -> dict[str, Code]:
    if rules.asks and rules.execs_ask:
        return {"execve": ASK}
    own = ASK if rules.asks else ALLOW
    return {"execve": if_equal(0, rules.exec_address, own, ALLOW if rules.programs else REFUSED)}


def _process_verdicts(rules: FilterRules) -> dict[str, Code]:
    if rules.programs:
        return {"clone": if_bits(0, _CLONE_NEW | _CLONE_PARENT, 0, ALLOW, FORBIDDEN)}
    spawn = if_equal(0, _SPAWN, ALLOW, FORBIDDEN)
    thread = if_bits(0, _CLONE_NEW | _CLONE_PARENT | _CLONE_THREAD, _CLONE_THREAD, ALLOW, spawn)
    return {"clone": thread, "fork": FORBIDDEN, "vfork": FORBIDDEN}


def filter_for(rules: FilterRules) -> bytes:
    """Return the filter of one profile, for a thread that has the common one and that of its number."""
    return assemble(_verdicts(rules))


def _verdicts(rules: FilterRules) -> dict[str, Code]:
    verdicts = _exec_verdicts(rules) | _process_verdicts(rules)
    verdicts |= dict.fromkeys(METADATA_CALLS, ASK if rules.metadata and rules.asks else FORBIDDEN)
    verdicts["socket"] = if_among(0, (_AF_INET, _AF_INET6), ALLOW, REFUSED) if rules.network else REFUSED
    # of two filters that ask, the newer one's listener answers: a program must not be its own judge
    verdicts["seccomp"] = if_bits(1, _NEW_LISTENER, 0, ALLOW, FORBIDDEN)
    return verdicts


USUAL: Final = FilterRules(_SOME_ADDRESS)
"""What the filter of the least profile leaves open: most programs have it, whatever they may read."""


@cache
def _usual_template() -> bytes:
    return assemble(_verdicts(USUAL) | _signal_verdicts())


def usual_filter(thread_id: int, exec_address: int) -> bytes:
    """Return the filters of `USUAL` and of a thread's number in one, for a thread that has the common one."""
    return _filled(_usual_template(), thread_id, exec_address)


def spawn_asks() -> bytes:
    """Return the filter that asks before a process is made as posix_spawn(3) makes it, for a thread whose other filters
    allow no other way.
    """
    return assemble({"clone": if_equal(0, _SPAWN, ASK, ALLOW)})

"""The numbers of system calls on this machine, by the kernel's own names.

Always true: a name that an architecture does not have is absent from its table, never a wrong number.
Sources: arch/x86/entry/syscalls/syscall_64.tbl for x86_64, include/uapi/asm-generic/unistd.h for aarch64,
Linux 6.18. Numbers from 424 on are the same everywhere. `LAST` is the last one that was read and judged for
the filters.
"""

import os
import sys
from typing import Final

from broker.refusal import StartupError

LAST: Final = 469

_SHARED: Final = """
    424:pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen
    fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2 process_madvise
    epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule
    landlock_restrict_self memfd_secret process_mrelease futex_waitv set_mempolicy_home_node cachestat
    fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount lsm_get_self_attr
    lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat listxattrat removexattrat
    open_tree_attr file_getattr file_setattr
"""

_X86_64: Final = """
    0:read write open close stat 8:lseek mmap mprotect munmap brk 16:ioctl 20:writev 28:madvise shmget
    shmat shmctl 41:socket connect accept sendto recvfrom sendmsg recvmsg shutdown bind listen
    getsockname getpeername socketpair 56:clone fork vfork execve exit wait4 kill 64:semget semop semctl
    shmdt msgget msgsnd msgrcv msgctl fcntl 85:creat 90:chmod fchmod chown fchown lchown 99:sysinfo 101:ptrace
    103:syslog 105:setuid setgid 113:setreuid setregid 116:setgroups setresuid 119:setresgid 126:capset 129:rt_sigqueueinfo
    132:utime mknod uselib personality ustat 139:sysfs 141:setpriority sched_setparam
    144:sched_setscheduler 153:vhangup modify_ldt pivot_root _sysctl prctl 159:adjtimex 161:chroot
    163:acct settimeofday mount umount2 swapon swapoff reboot sethostname setdomainname iopl ioperm
    create_module init_module delete_module 179:quotactl nfsservctl 188:setxattr lsetxattr fsetxattr
    getxattr lgetxattr 194:listxattr llistxattr 197:removexattr lremovexattr fremovexattr tkill
    203:sched_setaffinity 206:io_setup io_destroy io_getevents
    io_submit io_cancel 212:lookup_dcookie 216:remap_file_pages 220:semtimedop
    227:clock_settime 234:tgkill utimes 237:mbind set_mempolicy 240:mq_open mq_unlink 246:kexec_load
    248:add_key request_key keyctl ioprio_set 253:inotify_init 256:migrate_pages openat mkdirat mknodat
    fchownat futimesat newfstatat 268:fchmodat 272:unshare 279:move_pages utimensat 294:inotify_init1
    297:rt_tgsigqueueinfo perf_event_open 300:fanotify_init fanotify_mark prlimit64 name_to_handle_at open_by_handle_at
    clock_adjtime 308:setns getcpu process_vm_readv process_vm_writev kcmp finit_module sched_setattr
    317:seccomp 319:memfd_create kexec_file_load bpf execveat userfaultfd 332:statx
"""

_AARCH64: Final = """
    0:io_setup io_destroy io_submit io_cancel io_getevents setxattr lsetxattr fsetxattr getxattr lgetxattr
    11:listxattr llistxattr 14:removexattr lremovexattr fremovexattr 18:lookup_dcookie
    25:fcntl 26:inotify_init1 29:ioctl ioprio_set 33:mknodat
    mkdirat 39:umount2 mount pivot_root nfsservctl 51:chroot fchmod fchmodat fchownat fchown openat close
    vhangup 60:quotactl 62:lseek read write 88:utimensat acct 91:capset personality exit 97:unshare
    104:kexec_load init_module delete_module 112:clock_settime 116:syslog ptrace sched_setparam
    sched_setscheduler 122:sched_setaffinity 129:kill tkill tgkill 138:rt_sigqueueinfo 140:setpriority 142:reboot setregid
    setgid setreuid setuid setresuid 149:setresgid 159:setgroups 161:sethostname setdomainname 167:prctl getcpu
    170:settimeofday adjtimex 179:sysinfo mq_open mq_unlink 186:msgget msgctl msgrcv msgsnd semget semctl semtimedop
    semop shmget shmctl shmat shmdt socket socketpair bind listen accept connect getsockname getpeername
    sendto recvfrom 210:shutdown sendmsg recvmsg 214:brk munmap 217:add_key request_key keyctl clone execve
    mmap 224:swapon swapoff mprotect 233:madvise remap_file_pages mbind 237:set_mempolicy migrate_pages
    move_pages 240:rt_tgsigqueueinfo perf_event_open 260:wait4 prlimit64 fanotify_init fanotify_mark name_to_handle_at
    open_by_handle_at clock_adjtime 268:setns 270:process_vm_readv process_vm_writev kcmp finit_module
    sched_setattr 277:seccomp 279:memfd_create bpf execveat userfaultfd 291:statx 294:kexec_file_load
"""

AUDIT_ARCHITECTURE: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""linux/audit.h: what seccomp sees in `arch` for a native call."""


def numbers(machine: str) -> dict[str, int]:
    """Return name → number for `machine` as uname(2) spells it. Raises StartupError for one that is not
    known here.
    """
    own = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(machine)
    if own is None:
        raise StartupError(f"no system call numbers for {machine}: x86_64 and aarch64 are supported")
    table: dict[str, int] = {}
    number = 0
    for word in f"{own} {_SHARED}".split():
        start, _, name = word.rpartition(":")
        number = int(start) if start else number
        table[name] = number
        number += 1
    return table


if sys.platform != "linux":
    raise StartupError(
        f"this is {sys.platform}: commands can only be confined by Linux's Landlock and seccomp; "
        "run the broker in a Linux machine or container"
    )
MACHINE: Final = os.uname().machine
NUMBER: Final = numbers(MACHINE)

"""From profile to layers: what each grant adds, and that nothing else comes with it."""

import fcntl
import os
import signal
import struct
import termios
from pathlib import Path

import pytest

from broker import seccomp
from broker.confinement import Layers, Places, layers_for
from broker.elf import loader_of
from broker.landlock import EXECUTE, READ, READ_DIR, READ_FILE, WRITE, WRITE_FILE
from broker.profile import Profile
from broker.programs import Program
from broker.seccomp import (
    _SIGNALLING,
    FilterRules,
    assemble,
    common_filter,
    filter_for,
    thread_filter,
    usual_filter,
)
from broker.syscalls import AUDIT_ARCHITECTURE, LAST, MACHINE, NUMBER, numbers

PLACES = Places(jail="/jail", home="/home-of-nobody")
ADDRESS = 0x7F12_3456_7890
NATIVE = AUDIT_ARCHITECTURE[MACHINE]
ALLOWED, FORBIDDEN, REFUSED, ABSENT, ASKED, KILLED, UNKNOWN, UNSUPPORTED, NOT_OF_THIS_FILE = (
    code[0][3]
    for code in (
        seccomp.ALLOW,
        seccomp.FORBIDDEN,
        seccomp.REFUSED,
        seccomp.ABSENT,
        seccomp.ASK,
        seccomp.KILL,
        seccomp.UNKNOWN,
        seccomp.UNSUPPORTED,
        seccomp.NOT_OF_THIS_FILE,
    )
)

DANGEROUS = """
ptrace mount umount2 pivot_root chroot setns bpf perf_event_open keyctl add_key process_vm_readv
process_vm_writev pidfd_getfd kcmp clock_settime settimeofday adjtimex init_module finit_module
kexec_load reboot swapon acct quotactl open_by_handle_at fanotify_init syslog sethostname move_mount
open_tree fsopen mount_setattr shmget msgget semget mq_open
"""


def program(path: str = "/usr/bin/true", *more: str) -> Program:
    pinned = tuple((file, None) for file in (path, *more))
    return Program(Path(path).name, path, path, path.encode(), None, (), pinned)  # type: ignore[arg-type]


def layers(**grants: object) -> Layers:
    return layers_for(Profile(**grants), program(), ADDRESS, PLACES)  # type: ignore[arg-type]


def rights(of: Layers, path: str) -> int:
    """What the rules grant on the very path."""
    granted = {rule.rights for rule in of.rules if rule.path == path}
    return granted.pop() if granted else 0


def answer(instructions: bytes, name: str | int, *arguments: int, architecture: int = NATIVE) -> int:
    """What the kernel's interpreter of classic BPF would return for a call (seccomp(2), struct
    seccomp_data).
    """
    number = NUMBER[name] if isinstance(name, str) else name
    data = struct.pack("=iIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    code = [struct.unpack_from("=HBBI", instructions, at) for at in range(0, len(instructions), 8)]
    accumulator, place = 0, 0
    while True:
        operation, if_true, if_false, operand = code[place]
        place += 1
        if operation == 0x06:
            return int(operand)
        if operation == 0x20:
            accumulator = struct.unpack_from("=I", data, operand)[0]
        elif operation == 0x54:
            accumulator &= operand
        elif operation == 0x05:
            place += operand
        else:
            met = {0x15: accumulator == operand, 0x25: accumulator > operand, 0x35: accumulator >= operand}
            place += if_true if met[operation] else if_false


def test_by_default_the_jail_can_be_read_and_nothing_can_be_written() -> None:
    least = layers()
    assert rights(least, "/jail") == READ
    writable = {rule.path for rule in least.rules if rule.rights & (WRITE & ~WRITE_FILE)}
    assert writable == set()
    devices = {rule.path for rule in least.rules if rule.rights & WRITE_FILE}
    assert devices == {"/dev/full", "/dev/null", "/dev/zero"}


def test_writes_grants_writing_in_the_jail_but_no_execution_there() -> None:
    writing = layers(writes=True)
    assert rights(writing, "/jail") == READ | WRITE
    assert not rights(writing, "/jail") & EXECUTE
    assert rights(writing, "/usr") == READ


def test_only_the_program_and_its_loader_can_be_executed() -> None:
    executable = {rule.path for rule in layers().rules if rule.rights & EXECUTE}
    assert executable == {"/usr/bin/true", loader_of("/usr/bin/true")}


def test_what_may_run_can_be_executed_too_with_its_interpreter() -> None:
    script = program("/usr/bin/script", "/usr/bin/interpreter")
    executable = {rule.path for rule in layers(may_run=(script,)).rules if rule.rights & EXECUTE}
    others = executable - {loader_of("/usr/bin/true")}
    assert others == {"/usr/bin/true", "/usr/bin/script", "/usr/bin/interpreter"}


def test_files_of_the_jail_can_be_executed_with_may_run_own_only() -> None:
    own = layers(may_run_own=True)
    assert rights(own, "/jail") == READ | EXECUTE
    assert own.filter.programs
    assert not rights(layers(may_run=(program("/usr/bin/id"),)), "/jail") & EXECUTE


def test_no_folder_is_executable() -> None:
    for grants in ({}, {"writes": True}, {"read": ("/opt/tools",)}):
        for rule in layers(**grants).rules:
            if rule.rights & EXECUTE:
                assert rule.rights == EXECUTE | READ_FILE
                assert not rule.rights & READ_DIR


def test_read_grants_reading_of_that_place_alone() -> None:
    more = set(layers(read=("/opt/tools",)).rules) - set(layers().rules)
    assert {(rule.path, rule.rights) for rule in more} == {("/opt/tools", READ)}


def test_the_resolver_is_readable_with_network_only() -> None:
    assert rights(layers(network=True), "/etc/resolv.conf") == READ
    assert rights(layers(), "/etc/resolv.conf") == 0
    assert layers(network=True).network
    assert not layers().network


def test_no_process_of_the_machine_is_shown() -> None:
    shown = {rule.path for rule in layers().rules if rule.path.startswith("/proc")}
    assert "/proc" not in shown
    assert not {path for path in shown if path.startswith("/proc/self")}


def test_neither_all_of_etc_nor_a_home_is_readable() -> None:
    granted = {rule.path for rule in layers().rules}
    assert not granted & {
        "/",
        "/etc",
        "/home",
        "/root",
        "/run",
        "/var",
        "/dev",
        "/sys",
        "/tmp",
        "/etc/shadow",
    }
    assert not granted & {"/etc/ssl", "/etc/ssl/private"}


def test_the_broker_own_exec_asks_and_any_other_is_refused() -> None:
    least = filter_for(FilterRules(ADDRESS))
    assert answer(least, "execve", ADDRESS) == ASKED
    for other in (0, ADDRESS + 1, ADDRESS ^ (1 << 40), ADDRESS & 0xFFFFFFFF):
        assert answer(least, "execve", other) == REFUSED


def test_without_questions_the_broker_own_exec_is_let_through() -> None:
    assert answer(filter_for(FilterRules(ADDRESS, asks=False)), "execve", ADDRESS) == ALLOWED


def test_with_may_run_exec_is_left_to_landlock() -> None:
    assert layers(may_run=(program("/usr/bin/id"),)).filter.programs
    assert answer(filter_for(FilterRules(ADDRESS, programs=True)), "execve", 1) == ALLOWED
    assert answer(filter_for(FilterRules(ADDRESS, programs=True, execs_ask=True)), "execve", 1) == ASKED


@pytest.mark.parametrize("name", ["getxattr", "lgetxattr", "listxattr", "llistxattr"])
def test_no_attribute_is_read_by_a_path(name: str) -> None:
    assert answer(common_filter(), name) == UNSUPPORTED


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (fcntl.F_DUPFD_CLOEXEC, ALLOWED),
        (fcntl.F_GETFL, ALLOWED),
        (fcntl.F_SETLKW, ALLOWED),
        (fcntl.F_OFD_SETLK, ALLOWED),
        (fcntl.F_SETPIPE_SZ, ALLOWED),
        (fcntl.F_SETOWN, FORBIDDEN),
        (fcntl.F_SETLEASE, FORBIDDEN),
        (1040, FORBIDDEN),  # F_SETDELEG
        (1041, UNKNOWN),
        (12, UNKNOWN),
    ],
)
def test_an_operation_on_a_descriptor_that_nobody_judged_is_unknown(operation: int, expected: int) -> None:
    assert answer(common_filter(), "fcntl", 3, operation) == expected


def test_execveat_and_files_in_memory_are_refused_in_every_profile() -> None:
    for name in (
        "execveat",
        "memfd_create",
        "io_uring_setup",
        "clone3",
        "userfaultfd",
        "getxattrat",
        "listxattrat",
    ):
        assert answer(common_filter(), name) == ABSENT


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        pytest.param(0x003D0F00, ALLOWED, id="a thread"),
        pytest.param(0x4111, ALLOWED, id="the broker's own spawn"),
        pytest.param(0x01200011, FORBIDDEN, id="fork"),
        pytest.param(0x11, FORBIDDEN, id="plain clone"),
        pytest.param(0x4111 | 1 << 40, FORBIDDEN, id="spawn with a high bit"),
        pytest.param(0x10000000 | 0x003D0F00, FORBIDDEN, id="a thread in a user namespace"),
    ],
)
def test_a_program_that_may_run_none_makes_threads_but_no_processes(flags: int, expected: int) -> None:
    assert answer(filter_for(FilterRules(ADDRESS)), "clone", flags) == expected


def test_a_program_that_may_run_others_makes_processes_but_no_namespaces() -> None:
    rules = filter_for(FilterRules(ADDRESS, programs=True))
    assert answer(rules, "clone", 0x01200011) == ALLOWED
    for namespace in (1 << 17, *(1 << bit for bit in range(25, 31)), 1 << 7):
        assert answer(rules, "clone", 0x11 | namespace) == FORBIDDEN


def test_sockets_need_network_and_then_only_internet_ones_exist() -> None:
    without, within = filter_for(FilterRules(ADDRESS)), filter_for(FilterRules(ADDRESS, network=True))
    for family in range(46):
        assert answer(without, "socket", family) == REFUSED
        assert answer(within, "socket", family) == (ALLOWED if family in (2, 10) else REFUSED)


def test_metadata_calls_are_forbidden_without_a_place_to_write_and_asked_about_with_one() -> None:
    for name in seccomp.METADATA_CALLS:
        if name in NUMBER:
            assert answer(filter_for(FilterRules(ADDRESS)), name) == FORBIDDEN
            assert answer(filter_for(FilterRules(ADDRESS, metadata=True)), name) == ASKED
            assert answer(filter_for(FilterRules(ADDRESS, metadata=True, asks=False)), name) == FORBIDDEN
    assert layers(writes=True).filter.metadata
    assert layers(temporary=True).filter.metadata
    assert not layers().filter.metadata


@pytest.mark.parametrize("name", ["prlimit64", "sched_setaffinity", "sched_setscheduler"])
def test_a_program_changes_its_own_scheduling_and_limits_only(name: str) -> None:
    assert answer(common_filter(), name, 0) == ALLOWED
    assert answer(common_filter(), name, 1234) == FORBIDDEN


@pytest.mark.parametrize("name", DANGEROUS.split())
def test_dangerous_calls_are_forbidden_in_every_profile(name: str) -> None:
    assert answer(common_filter(), name) == FORBIDDEN


EVERYDAY = (
    termios.TCGETS,
    termios.TCSETSW,
    termios.TIOCGWINSZ,
    termios.TIOCGPGRP,
    termios.FIONREAD,
    termios.FIOCLEX,
)
UNHEARD = (
    *(
        termios.TIOCSTI,
        termios.TIOCSETD,
        termios.TIOCCONS,
        0x541C,
    ),  # keystrokes and code for a terminal; TIOCLINUX
    *(0x8901, 0x8902),  # FIOSETOWN SIOCSPGRP: signals to others
    *(0x40086602, 0x401C5820, 0x40087602),  # FS_IOC_SETFLAGS FS_IOC_FSSETXATTR FS_IOC_SETVERSION
    *(0x50009417, 0x5000940E, 0xC0189436),  # of btrfs: a snapshot, a new subvolume; FIDEDUPERANGE
)


@pytest.mark.parametrize("high_bits", [0, 1 << 32, 0xFFFFFFFF << 32])
def test_files_and_terminals_hear_what_is_asked_every_day_and_nothing_else(high_bits: int) -> None:
    for number in EVERYDAY:
        assert answer(common_filter(), "ioctl", 0, number | high_bits) == ALLOWED
    for number in UNHEARD:
        assert answer(common_filter(), "ioctl", 0, number | high_bits) == NOT_OF_THIS_FILE


@pytest.mark.parametrize(("name", "at"), [("open", 1), ("openat", 2)])
def test_a_file_is_opened_to_read_or_write_or_as_a_place(name: str, at: int) -> None:
    for flags, expected in (
        (os.O_RDONLY, ALLOWED),
        (os.O_RDWR | os.O_TRUNC, ALLOWED),
        (3 | os.O_PATH, ALLOWED),
        (3, REFUSED),
        (3 | os.O_CLOEXEC | os.O_NOFOLLOW, REFUSED),
        (3 | os.O_CREAT, REFUSED),
    ):
        if name in NUMBER:
            assert answer(common_filter(), name, *[0] * at, flags, 0o600) == expected


def test_no_file_is_made_with_a_set_id_bit() -> None:
    created, read_only = 0o101, 0
    assert answer(common_filter(), "openat", 0, 0, created, 0o4755) == FORBIDDEN
    assert answer(common_filter(), "openat", 0, 0, created, 0o644) == ALLOWED
    assert answer(common_filter(), "openat", 0, 0, read_only, 0o7777) == ALLOWED
    assert answer(common_filter(), "openat2") == ABSENT


def test_calls_of_another_architecture_kill_and_unjudged_numbers_are_absent() -> None:
    for instructions in (common_filter(), filter_for(FilterRules(ADDRESS))):
        assert answer(instructions, "read", architecture=0x40000003) == KILLED
        assert answer(instructions, LAST + 1) == ABSENT
        assert answer(instructions, 0x40000000) == ABSENT
        assert answer(instructions, "read") == ALLOWED


def test_the_search_tree_gives_each_call_exactly_its_own_verdict() -> None:
    verdicts = {
        "read": seccomp.REFUSED,
        "openat2": seccomp.if_equal(3, 1 << 33, seccomp.ABSENT, seccomp.FORBIDDEN),
        "close_range": seccomp.if_among(1, (5, 6, 7), seccomp.KILL, seccomp.ALLOW),
    }
    instructions = assemble(verdicts)
    known = {NUMBER[name] for name in verdicts}
    for number in range(LAST + 1):
        if number not in known:
            assert answer(instructions, number) == ALLOWED
    assert answer(instructions, "read") == REFUSED
    assert answer(instructions, "openat2", 0, 0, 0, 1 << 33) == ABSENT
    assert answer(instructions, "openat2", 0, 0, 0, 0) == FORBIDDEN
    assert [answer(instructions, "close_range", 0, value) for value in (4, 5, 6, 7, 8)] == [
        ALLOWED,
        KILLED,
        KILLED,
        KILLED,
        ALLOWED,
    ]


def test_a_filter_fits_the_kernel_limit() -> None:
    assert len(common_filter()) // 8 < 4096
    assert len(filter_for(FilterRules(ADDRESS, metadata=True))) // 8 < 256


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_call_of_the_filters_has_one_number_on_each_machine(machine: str) -> None:
    table = numbers(machine)
    assert len(set(table.values())) == len(table)
    assert max(table.values()) == LAST


def test_the_loader_of_what_is_no_program_is_none(tmp_path: Path) -> None:
    for content in (b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 58):
        file = tmp_path / "file"
        file.write_bytes(content)
        assert loader_of(str(file)) is None
    assert loader_of(str(tmp_path / "missing")) is None


def test_every_call_that_signals_a_thread_is_known_by_number_on_both_machines() -> None:
    for machine in ("x86_64", "aarch64"):
        assert set(_SIGNALLING) <= set(numbers(machine))


def test_a_thread_of_the_broker_is_out_of_reach_of_what_it_starts() -> None:
    guarded = thread_filter(4711)
    assert answer(guarded, "kill", 4711) == answer(guarded, "tkill", 4711) == FORBIDDEN
    assert answer(guarded, "tgkill", 1, 4711) == answer(guarded, "rt_tgsigqueueinfo", 1, 4711) == FORBIDDEN
    assert answer(guarded, "kill", 4712) == answer(guarded, "tgkill", 4711, 1) == ALLOWED


@pytest.mark.parametrize("address", [ADDRESS, 0x1000, 0x7FFFFFFFF000, 0xFFFF_FFFF])
def test_the_usual_filter_is_that_of_the_least_profile_and_that_of_a_thread_in_one(address: int) -> None:
    usual, least, own = usual_filter(4711, address), filter_for(FilterRules(address)), thread_filter(4711)
    assert answer(usual, "execve", address) == answer(least, "execve", address)
    for name in (
        "execve",
        "clone",
        "fork",
        "chmod",
        "socket",
        "seccomp",
        "openat",
        "kill",
        "tgkill",
        "pidfd_open",
    ):
        for first in (0, 1, 17, 4711, 0x4111, 0x10F00):
            for second in (0, 8, 4711):
                both = {answer(least, name, first, second), answer(own, name, first, second)} - {ALLOWED}
                assert answer(usual, name, first, second) == (both.pop() if both else ALLOWED)


def test_a_program_cannot_answer_what_its_own_calls_ask() -> None:
    assert answer(filter_for(FilterRules(ADDRESS)), "seccomp", 1, 1 << 3) == FORBIDDEN
    assert answer(filter_for(FilterRules(ADDRESS)), "seccomp", 1, 0) == ALLOWED


def test_no_process_is_made_a_child_of_the_broker() -> None:
    for programs in (False, True):
        made = filter_for(FilterRules(ADDRESS, programs=programs))
        assert answer(made, "clone", signal.SIGCHLD | 0x8000) == FORBIDDEN
        assert answer(made, "clone", 0x8000 | 0x10000 | 0x800 | 0x100) == FORBIDDEN


def test_a_nameless_file_gets_no_set_id_bit_either() -> None:
    nameless = 0o20000000 | os.O_DIRECTORY
    assert answer(common_filter(), "openat", 0, 0, nameless, 0o4755) == FORBIDDEN
    assert answer(common_filter(), "openat", 0, 0, nameless, 0o755) == ALLOWED


def test_pairs_of_datagram_sockets_are_refused() -> None:
    stream, datagram, close_on_exec = 1, 2, 0o2000000
    assert answer(common_filter(), "socketpair", 1, stream | close_on_exec) == ALLOWED
    assert answer(common_filter(), "socketpair", 1, datagram | close_on_exec) == REFUSED


@pytest.mark.parametrize(
    "command", [8, 15, 1024, 1026], ids=["F_SETOWN", "F_SETOWN_EX", "F_SETLEASE", "F_NOTIFY"]
)
def test_no_descriptor_reaches_other_processes(command: int) -> None:
    assert answer(common_filter(), "fcntl", 3, command) == FORBIDDEN

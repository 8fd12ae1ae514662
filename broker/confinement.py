"""From a policy entry's profile to the kernel's layers: pure data, so that every grant can be tested without a kernel.

Always true: what is not granted here is denied there; a right to run is granted file by file, never for a
folder; a profile's layers depend on the profile and its program alone, never on how many entries the policy
has. Nothing here makes a system call but to read which loader a program asks for.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from broker.elf import loader_of
from broker.landlock import EXECUTE, IOCTL_DEV, READ, READ_FILE, WRITE, WRITE_FILE, Rule
from broker.profile import Profile
from broker.programs import Program
from broker.seccomp import FilterRules

SYSTEM_FOLDERS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/libx32", "/lib64")
"""Programs, libraries and their data. On most systems all but the first are links into it."""

SYSTEM_FILES: Final = (
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates.conf",
    "/etc/crypto-policies",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/gitattributes",
    "/etc/gitconfig",
    "/etc/group",
    "/etc/host.conf",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/magic",
    "/etc/magic.mime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
    "/sys/devices/system/cpu",
    "/sys/kernel/mm/transparent_hugepage",
)
"""Single places that programs expect: never all of /etc, where some files are for root's eyes and the
broker may be root.
"""

MACHINE_FACTS: Final = (
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/fs/pipe-max-size",
    "/proc/sys/kernel/cap_last_cap",
    "/proc/sys/kernel/ngroups_max",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/random",
    "/proc/sys/vm/overcommit_memory",
    "/proc/uptime",
    "/proc/version",
)
"""Of /proc only what tells of the machine. A rule can name no process that does not exist yet, so /proc/self stays shut:
the price of not reading the command lines of the user's other processes. Links there (/proc/self/exe) still resolve."""

NETWORK_FILES: Final = ("/etc/gai.conf", "/etc/hosts", "/etc/resolv.conf")

DEVICES: Final = (
    Rule("/dev/full", READ_FILE | WRITE_FILE | IOCTL_DEV),
    Rule("/dev/null", READ_FILE | WRITE_FILE | IOCTL_DEV),
    Rule("/dev/random", READ_FILE),
    Rule("/dev/urandom", READ_FILE),
    Rule("/dev/zero", READ_FILE | WRITE_FILE),
)


class Places(NamedTuple):
    """Where the jail and the empty home of every command are, as real paths."""

    jail: str
    home: str


class Layers(NamedTuple):
    """What the kernel is told about one run.

    `network`: whether Landlock leaves TCP alone. `loaders`: (device, inode) of the loaders, which have the right
    to run but must not be executed by their own name: `ld.so FILE` would run any file that can be read.
    """

    rules: tuple[Rule, ...]
    network: bool
    filter: FilterRules
    loaders: frozenset[tuple[int, int]]


def runnable(paths: Iterable[str]) -> tuple[Rule, ...]:
    """Return the rights to run each of `paths`, and the loaders that they ask for, and nothing else."""
    files: dict[str, None] = {}
    for path in paths:
        files[path] = None
        loader = loader_of(path)
        if loader is not None:
            files[loader] = None
    return tuple(Rule(path, EXECUTE | READ_FILE) for path in files)


def _loaders(paths: Iterable[str]) -> frozenset[tuple[int, int]]:
    found = set()
    for loader in {loader_of(path) for path in paths} - {None}:
        try:
            status = os.stat(str(loader))
        except OSError:  # a program whose loader is missing cannot start
            continue
        found.add((status.st_dev, status.st_ino))
    return frozenset(found)


def _executables(program: Program, profile: Profile) -> Iterator[str]:
    for each in (program, *profile.may_run):
        yield os.fsdecode(each.path)
        yield from each.executables


def own_execution(profile: Profile) -> int:
    """Return the right to run what lies in the jail and the temporary folder, if the profile has it."""
    return EXECUTE if profile.may_run_own else 0


def layers_for(profile: Profile, program: Program, exec_address: int, places: Places) -> Layers:
    """Return the layers of `program` under `profile`. `exec_address`: where the path that the broker
    executes stands.
    """
    readable = (*SYSTEM_FOLDERS, *SYSTEM_FILES, *MACHINE_FACTS, places.home, *profile.read)
    if profile.network:
        readable += NETWORK_FILES
    executables = tuple(_executables(program, profile))
    rules = (
        Rule(places.jail, READ | (WRITE if profile.writes else 0) | own_execution(profile)),
        *(Rule(path, READ) for path in readable),
        *DEVICES,
        *runnable(executables),
    )
    filter_rules = FilterRules(
        exec_address=exec_address,
        network=profile.network,
        programs=bool(profile.may_run or profile.may_run_own),
        execs_ask=bool(profile.may_run) and not profile.may_run_own,
        metadata=profile.writes or profile.temporary,
    )
    return Layers(rules, profile.network, filter_rules, _loaders(executables))

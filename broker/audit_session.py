"""The name of a broker's session: boot, process, start time, and a random part."""

import os


def session_name() -> str:
    """Return `BOOT-PID-START-RANDOM`.

    BOOT is the first half of the kernel's boot id, START in clock ticks since boot (proc(5)); RANDOM tells
    apart two trails that one process opens.
    """
    boot = _read("/proc/sys/kernel/random/boot_id").replace("-", "")[:16]
    # The command's name may hold spaces and brackets: fields count from the last bracket; field 22 is
    # starttime.
    start = _read("/proc/self/stat").rpartition(")")[2].split()[19]
    return f"{boot}-{os.getpid()}-{start}-{os.urandom(4).hex()}"


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096).decode("utf-8", "replace").strip()
    finally:
        os.close(fd)

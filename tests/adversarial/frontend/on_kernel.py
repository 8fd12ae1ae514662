"""Attacks by sockets of every family, and by the kernel's own doors."""

import ctypes
import fcntl
import os
import socket

from tests.adversarial.frontend.kit import Targets, attack, buffer, call, run_in_child


@attack()
def connect_to_loopback(t: Targets) -> None:
    socket.create_connection(("127.0.0.1", t["port"]), timeout=2).close()


@attack()
def send_a_datagram(t: Targets) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.sendto(b"secret", ("127.0.0.1", t["udp_port"]))


@attack()
def connect_to_a_path(t: Targets) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(t["unix_path"])


@attack()
def connect_to_an_abstract_name(t: Targets) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.connect("\0" + t["token"])


@attack()
def listen_for_strangers(t: Targets) -> None:
    with socket.socket(socket.AF_INET) as end:
        end.bind(("127.0.0.1", 0))
        end.listen()


@attack("worked", "EAFNOSUPPORT")
def make_a_socket_of_version_six(t: Targets) -> None:
    socket.socket(socket.AF_INET6).close()


@attack()
def talk_to_the_kernel_by_netlink(t: Targets) -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()


@attack("worked", "EPERM")
def listen_to_the_wire(t: Targets) -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()


@attack("worked", "EPERM")
def make_a_raw_socket(t: Targets) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()


@attack("worked", "EAFNOSUPPORT", "ESOCKTNOSUPPORT")
def call_the_host_of_the_machine(t: Targets) -> None:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()


@attack("worked", "EAFNOSUPPORT")
def use_the_kernels_ciphers(t: Targets) -> None:
    socket.socket(38, socket.SOCK_SEQPACKET).close()  # AF_ALG


@attack("worked", "EAFNOSUPPORT", "EPERM", "ESOCKTNOSUPPORT")
def make_sockets_of_every_other_family(t: Targets) -> None:
    kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET)
    made, last = 0, OSError(97, "none")
    for family in (3, 4, 5, 9, 11, 21, 24, 29, 30, 31, 35, 36, 37, 39, 41, 43, 44):
        for kind in kinds:
            try:
                socket.socket(family, kind).close()
                made += 1
            except OSError as error:
                last = error
    if not made:
        raise last


@attack("worked", "EPERM", "ENOSPC", "EINVAL")
def make_a_user_namespace(t: Targets) -> None:
    run_in_child(lambda: os._exit(0 if call(t, "unshare", 0x10000000) == 0 else 1))


@attack(ordinary="EPERM")
def make_a_mount_namespace(t: Targets) -> None:
    call(t, "unshare", 0x00020000)


@attack("worked", "EPERM", "EINVAL", "ENOSYS")
def open_a_new_file_system(t: Targets) -> None:
    name = buffer(b"tmpfs\0")
    os.close(call(t, "fsopen", ctypes.addressof(name), 0))


@attack("EFAULT", ordinary=("EPERM", "EFAULT"))
def mount_something(t: Targets) -> None:
    call(t, "mount", 1, 1, 1, 0, 0)


@attack(ordinary="EPERM")
def change_the_root(t: Targets) -> None:
    os.chroot("/")


@attack(ordinary="EACCES")
def become_another_user(t: Targets) -> None:
    run_in_child(lambda: os._exit(int(os.setuid(1) is not None)))


@attack("worked", "ENOSYS", "EPERM")
def set_up_io_uring(t: Targets) -> None:
    parameters = buffer(bytes(120))
    os.close(call(t, "io_uring_setup", 1, ctypes.addressof(parameters)))


@attack("worked", "EPERM", "EINVAL")
def load_a_program_into_the_kernel(t: Targets) -> None:
    attributes = buffer((2).to_bytes(4, "little") + (4).to_bytes(4, "little") * 2 + (1).to_bytes(4, "little"))
    os.close(call(t, "bpf", 0, ctypes.addressof(attributes), 16))  # BPF_MAP_CREATE, an array


@attack("worked", "EPERM", "ENOSYS")
def handle_page_faults(t: Targets) -> None:
    os.close(call(t, "userfaultfd", os.O_CLOEXEC))


@attack("worked", "EACCES", "EPERM", "ENOENT", "ENOSYS")
def watch_the_machine(t: Targets) -> None:
    attributes = buffer((1).to_bytes(4, "little") + (112).to_bytes(4, "little") + bytes(104))
    os.close(call(t, "perf_event_open", ctypes.addressof(attributes), 0, -1, -1, 0))


@attack("worked", "ENOSYS", "EPERM")
def add_a_key(t: Targets) -> None:
    kind, name, payload = buffer(b"user\0"), buffer(t["token"].encode() + b"\0"), buffer(b"x")
    at = (ctypes.addressof(kind), ctypes.addressof(name), ctypes.addressof(payload))
    key = call(t, "add_key", *at, 1, -2)  # the process's own keyring
    call(t, "keyctl", 3, key)  # KEYCTL_REVOKE


@attack("worked", "ENOSYS", "EPERM")
def look_into_the_keyrings(t: Targets) -> None:
    call(t, "keyctl", 0, -2, 1)  # KEYCTL_GET_KEYRING_ID, made if there is none


@attack("worked", "ENOSYS")
def make_a_shared_segment(t: Targets) -> None:
    segment = call(t, "shmget", 0, 4096, 0o1600)
    call(t, "shmctl", segment, 0, 0)  # IPC_RMID


@attack("worked", "ENOSYS")
def make_a_message_queue(t: Targets) -> None:
    queue = call(t, "msgget", 0, 0o1600)
    call(t, "msgctl", queue, 0, 0)


@attack("worked", "ENOSYS")
def make_a_named_message_queue(t: Targets) -> None:
    name = buffer(t["token"].encode() + b"\0")
    os.close(call(t, "mq_open", ctypes.addressof(name), os.O_CREAT | os.O_RDWR, 0o600, 0))
    call(t, "mq_unlink", ctypes.addressof(name))


@attack("EINVAL", ordinary=("EINVAL", "EPERM"))
def set_the_clock(t: Targets) -> None:
    impossible = buffer((0).to_bytes(8, "little") + (2_000_000_000).to_bytes(8, "little"))
    call(t, "clock_settime", 0, ctypes.addressof(impossible))


@attack("EINVAL", "EPERM", ordinary=("EINVAL", "EPERM"))
def restart_the_machine(t: Targets) -> None:
    call(t, "reboot", 1, 1, 1, 0)  # not the magic numbers


@attack("EINVAL", "EPERM")
def rename_the_machine(t: Targets) -> None:
    call(t, "sethostname", 0, -1)


@attack("worked", "EPERM")
def read_the_kernels_log(t: Targets) -> None:
    call(t, "syslog", 10, 0, 0)  # SYSLOG_ACTION_SIZE_BUFFER


@attack("EFAULT", "EPERM", "ENOSYS", "EINVAL", "ENOEXEC")
def load_a_module(t: Targets) -> None:
    call(t, "init_module", 0, 0, 0)


@attack("worked", "EPERM", "ENOSYS")
def watch_every_file(t: Targets) -> None:
    os.close(call(t, "fanotify_init", 0, 0))


@attack("worked", "EIO", "EPERM")
def type_into_the_terminal(t: Targets) -> None:
    fcntl.ioctl(0, 0x5412, b"x")  # TIOCSTI; stdin is a terminal here


@attack("worked", "EPERM", "EINVAL")
def change_the_terminals_discipline(t: Targets) -> None:
    fcntl.ioctl(0, 0x5423, (0).to_bytes(4, "little"))  # TIOCSETD, to the one that it has

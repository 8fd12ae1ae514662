"""Attacks on policy, trail, jail and home, and on the broker's files in /proc."""

import ctypes
import os

from tests.adversarial.frontend.kit import Targets, attack, buffer, call, read


@attack()
def read_the_policy(t: Targets) -> None:
    read(t["policy"])


@attack()
def widen_the_policy(t: Targets) -> None:
    with open(t["policy"], "a") as file:
        file.write("# mine now\n")


@attack()
def forge_a_record(t: Targets) -> None:
    with open(t["trail"], "a") as file:
        file.write('{"record_type": "outcome"}\n')


@attack()
def read_the_trail(t: Targets) -> None:
    read(t["trail"])


@attack()
def cut_the_trail(t: Targets) -> None:
    os.truncate(t["trail"], 0)


@attack()
def hide_the_trail(t: Targets) -> None:
    os.rename(t["trail"], t["trail"] + ".old")


@attack()
def make_the_policy_writable_for_all(t: Targets) -> None:
    os.chmod(t["policy"], 0o666)


@attack()
def change_the_times_of_the_policy(t: Targets) -> None:
    os.utime(t["policy"], (1, 1))


@attack(ordinary=("worked", "EPERM"))
def give_the_policy_away(t: Targets) -> None:
    os.chown(t["policy"], os.getuid(), os.getgid())


@attack("worked", "ENOTSUP")
def mark_the_policy(t: Targets) -> None:
    os.setxattr(t["policy"], "user.mark", b"1")


@attack()
def list_the_attributes_of_the_policy(t: Targets) -> None:
    os.listxattr(t["policy"])


@attack()
def ask_the_policy_for_its_attributes(t: Targets) -> None:
    os.listxattr(os.open(t["policy"], 3))  # opened neither to read nor to write


@attack()
def link_to_the_policy(t: Targets) -> None:
    os.link(t["policy"], t["policy"] + ".link")


@attack()
def read_the_jail(t: Targets) -> None:
    read(t["jail"] + "/readme.txt")


@attack()
def list_the_jail(t: Targets) -> None:
    os.listdir(t["jail"])


@attack()
def write_in_the_jail(t: Targets) -> None:
    with open(t["jail"] + "/planted.txt", "w") as file:
        file.write("planted")


@attack()
def plant_a_link_in_the_jail(t: Targets) -> None:
    os.symlink("/etc", t["jail"] + "/planted_link")


@attack()
def walk_into_the_jail(t: Targets) -> None:
    os.chdir(t["jail"])
    try:
        read("readme.txt")
    finally:
        os.chdir("/")


@attack()
def read_a_private_file(t: Targets) -> None:
    read(t["private"])


@attack(ordinary="EACCES")
def read_the_password_hashes(t: Targets) -> None:
    read("/etc/shadow")


@attack()
def leave_a_file_in_tmp(t: Targets) -> None:
    with open(t["folder"] + "/left.txt", "w") as file:
        file.write("left")


@attack("worked", "ENOTSUP")
def leave_an_unnamed_file(t: Targets) -> None:
    os.close(os.open(t["folder"], os.O_TMPFILE | os.O_WRONLY))


@attack()
def make_a_folder(t: Targets) -> None:
    os.mkdir(t["folder"] + "/made")


@attack()
def make_a_fifo(t: Targets) -> None:
    os.mkfifo(t["folder"] + "/fifo")


@attack(ordinary="EPERM")
def make_a_device(t: Targets) -> None:
    os.mknod(t["folder"] + "/null", 0o020666, os.makedev(1, 3))


@attack()
def share_memory_by_a_file(t: Targets) -> None:
    path = f"/dev/shm/{t['token']}"
    os.close(os.open(path, os.O_CREAT | os.O_RDWR))
    os.unlink(path)


@attack("worked", "EOPNOTSUPP", "EPERM")
def open_a_file_by_its_handle(t: Targets) -> None:
    handle, mount = buffer(b"\x80\0\0\0" + bytes(132)), buffer(bytes(4))
    path = buffer(t["private"].encode() + b"\0")
    call(
        t,
        "name_to_handle_at",
        -100,
        ctypes.addressof(path),
        ctypes.addressof(handle),
        ctypes.addressof(mount),
    )


@attack(ordinary="EACCES")
def read_the_brokers_environment(t: Targets) -> None:
    read(f"/proc/{t['broker']}/environ")


@attack()
def read_the_brokers_command_line(t: Targets) -> None:
    read(f"/proc/{t['broker']}/cmdline")


@attack(ordinary="EACCES")
def open_the_brokers_memory(t: Targets) -> None:
    open(f"/proc/{t['broker']}/mem", "rb").close()


@attack(ordinary="EACCES")
def list_the_brokers_descriptors(t: Targets) -> None:
    os.listdir(f"/proc/{t['broker']}/fd")


@attack(ordinary="EACCES")
def read_the_brokers_map(t: Targets) -> None:
    read(f"/proc/{t['broker']}/maps")


@attack()
def spare_another_from_the_end_of_memory(t: Targets) -> None:
    with open(f"/proc/{t['decoy']}/oom_score_adj", "w") as file:
        file.write("500")


@attack()
def read_anothers_memory_through_proc(t: Targets) -> None:
    with open(f"/proc/{t['decoy']}/mem", "rb", buffering=0) as memory:
        memory.seek(t["address"])
        memory.read(8)


@attack()
def remove_the_policy(t: Targets) -> None:
    os.unlink(t["policy"])

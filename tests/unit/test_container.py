"""Inside a container that refuses namespaces, mounts and tracing, as Docker's default does, everything holds all the same.

The container is a process whose own filter answers EPERM to what Docker's default profile does (moby's
profiles/seccomp/default.json, for a container without capabilities), and ENOSYS to clone3.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import COMMAND
from tests.support.place import Place

BOUND_S = 60.0
REFUSED_BY_DOCKER = (
    "acct add_key bpf chroot clock_adjtime clock_settime create_module delete_module fanotify_init finit_module",
    "fsconfig fsmount fsopen fspick init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp",
    "kexec_file_load kexec_load keyctl lookup_dcookie mount mount_setattr move_mount move_pages nfsservctl",
    "name_to_handle_at open_by_handle_at open_tree perf_event_open pivot_root process_vm_readv process_vm_writev",
    "ptrace quotactl reboot request_key setdomainname sethostname setns settimeofday swapoff swapon sysfs syslog",
    "umount2 unshare uselib userfaultfd ustat vhangup _sysctl",
)
CONTAINER = f"""
import sys
from pathlib import Path
from broker import kernel, seccomp

kernel.set_no_new_privs()
outer = dict.fromkeys({" ".join(REFUSED_BY_DOCKER)!r}.split(), seccomp.FORBIDDEN)
outer["clone3"] = seccomp.ABSENT
outer["clone"] = seccomp.if_bits(0, 0x7E020000, 0, seccomp.ALLOW, seccomp.FORBIDDEN)
kernel.seccomp_filter(seccomp.assemble(outer))
from tests.support.confined import Confined
"""


def contained(folder: Path, code: str) -> str:
    """Run `code` in the container; `confined` is an executor there."""
    program = f"{CONTAINER}\nwith Confined(Path(sys.argv[1])) as confined:\n"
    program += "".join(f"    {line}\n" for line in code.splitlines())
    ended = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_command_runs_in_its_folder(tmp_path: Path) -> None:
    assert contained(tmp_path, "print(confined.run('pwd').stdout)").strip() == str(tmp_path / "jail")


def test_files_are_made_for_this_user_alone(tmp_path: Path) -> None:
    code = "from broker.profile import Profile\nconfined.run('touch', 'file', profile=Profile(writes=True))"
    contained(tmp_path, code)
    assert (tmp_path / "jail" / "file").stat().st_mode & 0o777 == 0o600


def test_modes_can_be_changed_in_the_jail_and_not_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o600)
    code = (
        "from broker.profile import Profile\n"
        "(confined.root / 'file').write_text('x')\n"
        f"for file in 'file', {str(outside)!r}:\n"
        "    print(confined.run('chmod', '777', file, profile=Profile(writes=True)).exit_code)"
    )
    assert contained(tmp_path, code).split() == ["0", "1"]
    assert outside.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "attack",
    [
        "open('/proc/self/status')",
        "import os; os.fork()",
        "import os; os.execv('/bin/true', ['true'])",
        "import _socket; _socket.socket()",
        "import os; os.kill(os.getppid(), 0)",
    ],
)
def test_an_attack_is_refused(tmp_path: Path, attack: str) -> None:
    code = f"ended = confined.python({attack!r})\nprint(ended.exit_code, 'PermissionError' in ended.stderr)"
    assert contained(tmp_path, code).split() == ["1", "True"]


def test_daemons_die_with_the_call(tmp_path: Path) -> None:
    code = (
        "from broker.profile import Profile\n"
        "from tests.support.processes import marked, unique_seconds\n"
        "from tests.support.waiting import eventually\n"
        "marker = unique_seconds()\n"
        "profile = Profile(may_run=confined.programs('sleep', 'setsid'))\n"
        "confined.run('sh', '-c', f'setsid sleep {marker} & sleep 0.1', profile=profile)\n"
        "eventually(lambda: not marked(marker), 'the daemon is gone')\n"
        "print('gone')"
    )
    assert contained(tmp_path, code).strip() == "gone"


def test_as_process_1_the_doctor_finds_everything_and_says_no_more(place: Place) -> None:
    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*alone, "true"], capture_output=True, timeout=BOUND_S, check=False).returncode:
        pytest.skip("this user may not make a namespace of processes")
    ended = subprocess.run(
        [*alone, COMMAND, "doctor"],
        env=place.environment(),
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    assert "MISSING" not in ended.stdout

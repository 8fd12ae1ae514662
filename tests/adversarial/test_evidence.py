"""The looks at what an escape leaves behind see it: without this, a canary that shows nothing would prove nothing."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.adversarial import evidence

ENCODERS = [
    "cat F",
    "base64 F",
    "base64 -w 7 F",
    "base32 F",
    "od F",
    "od -An -c F",
    "od -x F",
    "od -t x1 F",
    "od -t u1 -An F",
    "xxd F",
    "xxd -p F",
    "hexdump -C F",
    "rev F",
    "tac F",
    "nl F",
    "fold -w 9 F",
    "head -c 26 F",
    "python3 -c \"import codecs; print(codecs.encode(open('F').read(), 'rot13'))\"",
    "sh -c 'echo xx; cat F' ",
    "sh -c '(printf x; cat F) | base64'",
    "sh -c '(printf xx; cat F) | base64'",
    "sh -c '(printf xxx; cat F) | base32'",
    "tr A-Z a-z",
]


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_canary_is_found_whatever_common_program_printed_it(tmp_path: Path, encoder: str) -> None:
    """The tests of the kernel see a file from outside in any form: what they call harmless printed none of it."""
    secret = evidence.new_canary()
    (tmp_path / "F").write_text(secret + "\n")
    program = encoder.split(maxsplit=1)[0]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    with (tmp_path / "F").open() as file:
        shown = subprocess.run(
            encoder,
            shell=True,
            cwd=tmp_path,
            stdin=file,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    assert evidence.Encodings(secret).found_in(shown.stdout), shown.stdout


def test_a_canary_is_not_found_where_it_is_not() -> None:
    other = evidence.new_canary()
    text = f"HTM-CANARY- {other}\n" + "".join(f"{number:x}" for number in range(4000))
    assert evidence.Encodings(evidence.new_canary()).found_in(text) == []


@pytest.mark.parametrize("encoder", ["cat", "base64", "xxd", "tail -n +2", "cut -d: -f1-4"])
def test_the_list_of_accounts_is_found(encoder: str) -> None:
    if shutil.which(encoder.split(maxsplit=1)[0]) is None:
        pytest.skip(f"{encoder} is not installed")
    shown = subprocess.run(
        [*encoder.split(), "/etc/passwd"], capture_output=True, text=True, timeout=10, check=True
    )
    assert evidence.passwd_found_in(shown.stdout)


def _write(folder: Path) -> None:
    (folder / "secret.txt").write_text("other")


def _create(folder: Path) -> None:
    (folder / "pwned").touch()


def _change_mode(folder: Path) -> None:
    (folder / "secret.txt").chmod(0o600)


def _change_times(folder: Path) -> None:
    os.utime(folder / "secret.txt", (0, 0))


def _link(folder: Path) -> None:
    os.link(folder / "secret.txt", folder.parent / "second_name")


def _change_folder(folder: Path) -> None:
    folder.chmod(0o700)


@pytest.mark.parametrize("change", [_write, _create, _change_mode, _change_times, _link, _change_folder])
def test_every_change_to_a_folder_is_seen(tmp_path: Path, change) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "outside"
    folder.mkdir(mode=0o755)
    (folder / "secret.txt").write_text("secret")
    before = evidence.fingerprint(folder)
    assert evidence.differences(before, evidence.fingerprint(folder)) == []
    change(folder)
    assert evidence.differences(before, evidence.fingerprint(folder))

"""Each word that a document sets as code is one of the code, and each number that it tells is one that the code has."""

import re
from functools import cache
from pathlib import Path

import pytest

from broker import attendants, audit_file, audit_rotation, landlock, schema
from broker.audit_command import _parser as audit_parser
from broker.audit_record import CallLine, EventLine
from broker.audit_selection import EVENTS
from broker.printed_lines import TABLE_BYTES
from broker.processors import MANY
from broker.redaction import WINDOW_BYTES
from protocol import framing, messages
from protocol.messages import CommandResult, Tool
from tests.support.documents import DOCUMENTS, ROOT, rows
from tests.unit import test_sizes

CODE = ("broker", "frontend", "protocol", "tests", ".ci")
FILES = ("policy.toml", "pyproject.toml", "manifest.json", "server.json", ".gitignore")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SET_AS_CODE = re.compile(r"`([^`\n]+)`")
WORD = re.compile(r"[\w./~-]*\w[\w./~*-]*")
CONSTANT = re.compile(r"\b[A-Z]+(?:_[A-Z0-9]+)+\b")

OF_OTHERS = """
--inc -U0 --now --require-hashes --system-call-filter -c1-20 -rl ARGS DynamicUser LD_PRELOAD PrivateUsers ProcSubset ProtectHome
ReadWritePaths RestrictSUIDSGID SystemCallFilter THE TIME authorized_keys daemon-reload emptyDir listChanged
multiprocessing.Pool pgpass sunshine system-service tini AKIAIOSFODNN7EXAMPLE landlock_* HOST /proc/self/maps
/run/user/1000/htmcp.sock .venv/bin/pip XDG_CONFIG_HOME/hardened-terminal-mcp/ audit.jsonl.sealed-TIME
"""
"""Words of other programs, and examples, that documents set as code and nothing here contains."""
PLACES_OF_A_USER = ("~/.config/", "~/.local/state/")


@cache
def known_words() -> frozenset[str]:
    """Return every word of the code, whole and in its parts, and every file's name."""
    paths = [path for folder in CODE for path in (ROOT / folder).rglob("*") if path.is_file()]
    paths = [path for path in paths if path.suffix in (".py", ".toml", ".json", ".sh", ".jsonl", "")]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in paths if path != Path(__file__)]
    text = "\n".join([*texts, *((ROOT / name).read_text(encoding="utf-8") for name in FILES)])
    words = {
        *WORD.findall(text),
        *re.findall(r"\w+", text),
        *re.findall(r"--?[\w-]+", text),
        *OF_OTHERS.split(),
    }
    names = [path for path in ROOT.rglob("*") if ".venv" not in path.parts]
    return frozenset(words | {path.name for path in names} | {str(path.relative_to(ROOT)) for path in names})


def is_known(word: str) -> bool:
    words = known_words()
    if word.startswith(PLACES_OF_A_USER):
        return True
    dotted = word.strip(".").split(".") if "/" not in word else [""]
    return (
        word in words or word.rstrip("/") in words or all(part in words or part.isdigit() for part in dotted)
    )


def words_of(text: str) -> set[str]:
    quoted = SET_AS_CODE.findall(FENCED.sub("", text))
    words = {word.rstrip(".") for words in quoted for word in WORD.findall(words)}
    return words | set(CONSTANT.findall(text))


UNITS = (
    "KiB MiB GiB KB MB bytes ms s seconds minutes characters lines digits calls commands fields times threads processes files "
    "records questions places days programs words columns entries requests rows folders profiles tools kinds claims"
)
SPELLED = [
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "twenty",
    "thirty",
    "fifty",
    "hundred",
    "thousand",
]
NUMBER = rf"(?:\d[\d,.]*|{'|'.join(SPELLED)})"
TOLD = re.compile(rf"\b({NUMBER}(?: (?:or|to|and) {NUMBER})?[ -](?:{UNITS.replace(' ', '|')}))\b")
VERSION = re.compile(
    r"\b((?:Linux|Python|ABI|systemd|Debian|Docker|Node) \d[\d.]*\d|(?:ABI) \d)(?: to (\d[\d.]*\d))?"
)
AUDIT = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
MEASURED = ("performance.md", "CHANGELOG.md")
"""What the bench prints is no constant; `test_bench` sees that it prints it."""


def spelled(number: int) -> str:
    return dict(enumerate(SPELLED[:11], start=2))[number]


def numbers_of_the_code() -> dict[str, set[str]]:
    """Return what each document may tell, from the constants that it tells of."""
    envelope = f"{spelled(len(CommandResult.__struct_fields__))} fields"
    last_two = {struct.__struct_fields__[-2:] for struct in (CallLine, EventLine)}
    shown = audit_parser().parse_args(["show"]).number
    on_page = audit_parser().parse_args(["report", "--html", "-"]).rows
    minor = re.search(r'requires-python = ">=(3\.\d+)', (ROOT / "pyproject.toml").read_text())
    assert minor is not None
    scoped, first = "Linux 6.12", "Linux 5.13"  # landlock(7), which kernel brought which ABI
    return {
        "README.md": {
            f"{spelled(len(Tool))} tools",
            "two kinds",
            envelope,
            f"Python {minor[1]}",
            f"ABI {landlock.SCOPED_ABI}",
            "ABI 1",
            scoped,
            first,
        },
        "SECURITY.md": {f"{spelled(len(Tool))} tools"},
        "CONTRIBUTING.md": {f"{test_sizes.MODULE_LINES} lines"},
        "architecture.md": {f"{spelled(MANY)} commands"},
        "audit.md": {
            f"{spelled(len(last_two.pop()))} fields",
            "two files",
            f"{audit_file.TAIL_BYTES // 1024} KiB",
            f"{spelled(int(audit_file.LOCK_WAIT_S))} seconds",
            f"{spelled(len(audit_rotation.rotated_name('', 1).lstrip('.')))} digits",
            f"{shown} calls",
            f"{on_page} records",
        },
        "containment.md": {
            scoped,
            first,
            "Linux 6.7",
            "ABI 3",
            f"ABI {landlock.TCP_ABI}",
            f"{spelled(attendants.MOST)} threads",
            f"{spelled(int(landlock.REACH_S))} seconds",
        },
        "protocol.md": {
            f"{spelled(framing.LENGTH_BYTES)} bytes",
            f"{framing.REQUEST_LIMIT_BYTES} bytes",
            f"{framing.REPLY_LIMIT_BYTES} bytes",
            envelope,
            *(
                f"{number} characters"
                for number in (
                    128,
                    messages.COMMAND_CHARACTERS,
                    messages.PATH_CHARACTERS,
                    messages.ARGUMENTS_CHARACTERS,
                    1024,
                )
            ),
        },
        "redaction.md": {
            f"{WINDOW_BYTES // 1024} KiB",
            f"{TABLE_BYTES // 1024} KiB",
            "two fields",
            "two files",
            "64 or 70 characters",
            "40 characters",
        },
        "policy.md": {"two words"},
    }


TRIED_ONCE = {
    "deployment.md": {
        *("8 KiB", "three calls", "systemd 257", "systemd 252"),
        *("Docker 20.10", "Debian 12", "Linux 6.18", "Python 3.13"),
    },
    "0003-one-thread-per-call.md": {"ABI 6"},
    "0004-re2.md": {"thirty characters"},
    "0012-a-program-waits-for-the-disk.md": {"Linux 5.5"},
}
"""What was found out elsewhere, and is no constant here."""


@pytest.mark.parametrize(
    "path", [path for path in DOCUMENTS if path.name not in MEASURED], ids=lambda path: path.name
)
def test_every_number_that_is_told_is_one_that_the_code_has(path: Path) -> None:
    text = FENCED.sub("", path.read_text(encoding="utf-8"))
    told = {*TOLD.findall(text), *(found[0] for found in VERSION.findall(text))}
    assert told == (numbers_of_the_code() | TRIED_ONCE).get(path.name, set())


def test_the_settings_of_the_trail_and_their_defaults_are_those_of_the_code() -> None:
    settings = schema.Audit()
    told = {cells[0].strip("`"): cells[2].strip('`"') for cells in rows(AUDIT) if len(cells) == 4}
    assert told.pop("[audit]` key") == "default"
    shown = {name: getattr(settings, name) for name in settings.__struct_fields__}
    assert told.keys() == shown.keys()
    assert (told["keep"], told["fail_mode"], told["durability"]) == (
        str(shown["keep"]),
        shown["fail_mode"],
        shown["durability"],
    )
    assert (shown["max_bytes"], told["max_bytes"], shown["mirror"], told["mirror"]) == (
        None,
        "never",
        None,
        "none",
    )


def test_the_fields_of_records_are_those_of_the_code() -> None:
    fields = {name for cells in rows(AUDIT) if len(cells) == 3 for name in SET_AS_CODE.findall(cells[0])}
    assert fields == {*CallLine.__struct_fields__, *EventLine.__struct_fields__, "hash"}


def test_the_events_are_those_of_the_code() -> None:
    told = AUDIT.partition("\nEvents: ")[2].partition("\n\n")[0]
    assert set(SET_AS_CODE.findall(told)) - {"session", "count"} == {*EVENTS} - {"protocol_violation"}


def test_the_statuses_of_verify_are_those_of_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    told = re.search(r"Exit status of `verify`: ([^.]+)\.", AUDIT)
    assert told is not None
    with pytest.raises(SystemExit):
        audit_parser().parse_args(["verify", "--help"])
    in_help = capsys.readouterr().out.rpartition("exit status")[2]
    assert set(re.findall(r"\b\d+\b", told[1])) <= set(re.findall(r"\b\d+\b", in_help))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_word_that_is_set_as_code_is_one_of_the_code(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not {word for word in words_of(text) if not is_known(word)}

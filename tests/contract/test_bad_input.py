"""Whatever a client sends, it gets a typed code or a JSON-RPC error, nothing hangs, and the next call works."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.envelope import Envelope
from tests.support.processes import unique_seconds
from tests.support.raw_client import Message, RawClient, envelope_in
from tests.support.trail import about

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602

another_user = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


@pytest.fixture(autouse=True)
def goes_on(raw: RawClient) -> Iterator[None]:
    """After each test: the next call works, and no line but its answer came."""
    yield
    assert raw.run("echo next").stdout == "next\n"
    assert "Traceback" not in raw.stderr


def call_line(arguments: object, *, name: str = "run_command") -> bytes:
    """Return a tool call as one line, its id 'line', with lone surrogates escaped."""
    params = {"name": name, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": "line", "method": "tools/call", "params": params}
    return json.dumps(message).encode() + b"\n"


def answer_to(raw: RawClient, line: bytes) -> Message:
    """Send a line and return the next message."""
    raw.send_bytes(line)
    return raw.message()


def envelope_for(raw: RawClient, arguments: object, *, name: str = "run_command") -> Envelope:
    """Call a tool with any JSON value and return the envelope."""
    answer = answer_to(raw, call_line(arguments, name=name))
    assert answer["id"] == "line"
    return envelope_in(answer)


REFUSED_COMMANDS = {
    "ten megabytes": ("echo " + "x" * 10_000_000, "PARSE_ERROR"),
    "just over the longest command": ("echo " + "x" * 65_536, "PARSE_ERROR"),
    "a hundred thousand words": ("echo " + "x " * 100_000, "PARSE_ERROR"),
    "thirty thousand words": ("echo " + "x " * 30_000, "PARSE_ERROR"),
    "nul": ("echo a\0b", "PARSE_ERROR"),
    "quoted nul": ("echo 'a\0b'", "PARSE_ERROR"),
    "a lone high surrogate": ("echo \ud800", "PARSE_ERROR"),
    "a lone low surrogate": ("echo '\udfff'", "PARSE_ERROR"),
    "a surrogate that stands for a byte": ("cat \udcff", "PARSE_ERROR"),
    "an open single quote": ("echo 'open", "PARSE_ERROR"),
    "an open double quote": ('echo "open', "PARSE_ERROR"),
    "a quote alone": ("'", "PARSE_ERROR"),
    "newline": ("echo a\necho b", "POLICY_DENIED"),
    "carriage return": ("echo a\recho b", "POLICY_DENIED"),
    "escape": ("echo \x1b[31m", "POLICY_DENIED"),
    "a zero width space": ("echo a\u200bb", "POLICY_DENIED"),
    "a right to left override": ("echo \u202etxt", "POLICY_DENIED"),
    "a no-break space": ("echo\u00a0a", "POLICY_DENIED"),
    "empty": ("", "POLICY_DENIED"),
    "blank": (" \t ", "POLICY_DENIED"),
    "an empty word for a program": ("'' a", "POLICY_DENIED"),
}


@pytest.mark.parametrize("tool", ["run_command", "explain_command"])
@pytest.mark.parametrize("case", REFUSED_COMMANDS)
def test_a_command_that_cannot_be_one_gets_its_typed_code(raw: RawClient, case: str, tool: str) -> None:
    command, code = REFUSED_COMMANDS[case]
    answer = envelope_for(raw, {"command": command}, name=tool)
    assert (answer.ok, answer.code, answer.stdout, answer.exit_code) == (False, code, "", None)
    assert 0 < len(answer.policy_reason) <= 1_000


WRONG_ARGUMENTS: tuple[object, ...] = (
    None,
    [],
    ["ls"],
    "ls",
    7,
    True,
    {},
    {"command": None},
    {"command": 7},
    {"command": 1.5},
    {"command": False},
    {"command": ["ls"]},
    {"command": {"command": "ls"}},
    {"Command": "ls"},
    {"command": "ls", "shell": True},
    {"command": "ls", "cwd": 7},
    {"command": "ls", "cwd": []},
    {"command": "ls", "\ud800": 1},
    {"cwd": "src"},
)


@pytest.mark.parametrize("tool", ["run_command", "explain_command"])
@pytest.mark.parametrize("arguments", WRONG_ARGUMENTS, ids=json.dumps)
def test_arguments_that_fit_no_schema_are_a_parse_error(raw: RawClient, arguments: object, tool: str) -> None:
    answer = envelope_for(raw, arguments, name=tool)
    assert (answer.ok, answer.code, answer.exit_code) == (False, "PARSE_ERROR", None)


def test_a_call_without_arguments_is_a_parse_error(raw: RawClient) -> None:
    line = b'{"jsonrpc":"2.0","id":"line","method":"tools/call","params":{"name":"run_command"}}\n'
    assert envelope_in(answer_to(raw, line)).code == "PARSE_ERROR"


def test_texts_that_look_like_json_are_never_interpreted(raw: RawClient) -> None:
    assert envelope_for(raw, {"command": "pwd", "cwd": "null"}).code == "CWD_ESCAPE"
    assert envelope_for(raw, {"command": '["ls"]'}).code == "POLICY_DENIED"
    assert envelope_for(raw, {"command": "7"}).code == "POLICY_DENIED"


NO_REQUESTS = {
    "an empty object": (b"{}", INVALID_REQUEST),
    "a number": (b"42", INVALID_REQUEST),
    "a text": (b'"tools/call"', INVALID_REQUEST),
    "null": (b"null", INVALID_REQUEST),
    "an empty batch": (b"[]", INVALID_REQUEST),
    "a batch": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', INVALID_REQUEST),
    "no version": (b'{"id":1,"method":"ping"}', INVALID_REQUEST),
    "another version": (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', INVALID_REQUEST),
    "a method that is a number": (b'{"jsonrpc":"2.0","id":1,"method":7}', INVALID_REQUEST),
    "an id that is a fraction": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', INVALID_REQUEST),
    "an id that is true": (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', INVALID_REQUEST),
    "an id that is null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', INVALID_REQUEST),
    "an id that is a list": (b'{"jsonrpc":"2.0","id":[],"method":"ping"}', INVALID_REQUEST),
    "parameters that are a list": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', INVALID_PARAMS),
    "an unknown method": (b'{"jsonrpc":"2.0","id":1,"method":"tools/burn"}', METHOD_NOT_FOUND),
    "no JSON": (b"run ls", PARSE_ERROR),
    "a byte order mark before it": (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}', PARSE_ERROR),
    "half an object": (b'{"jsonrpc":"2.0",', PARSE_ERROR),
    "a NUL": (b"\0", PARSE_ERROR),
    "NaN": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', PARSE_ERROR),
    "the same key twice": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', PARSE_ERROR),
    "deep nesting": (b"[" * 100_000, PARSE_ERROR),
    "invalid UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', PARSE_ERROR),
}


@pytest.mark.parametrize("case", NO_REQUESTS)
def test_a_line_that_is_no_request_gets_an_error(raw: RawClient, case: str) -> None:
    line, code = NO_REQUESTS[case]
    answer = answer_to(raw, line + b"\n")
    assert answer["error"]["code"] == code
    assert "Error" not in answer["error"]["message"].replace("Parse error", "")


def test_invalid_utf_8_in_a_command_is_refused_and_not_repaired(raw: RawClient) -> None:
    line = call_line({"command": "touch made-by-@"}).replace(b"@", b"\xff\xfe")
    assert answer_to(raw, line)["error"]["code"] == PARSE_ERROR
    assert not [name for name in os.listdir(raw.place.jail) if name.startswith("made-by-")]


def test_two_commands_in_one_call_are_refused(raw: RawClient) -> None:
    line = call_line({"command": "ls"}).replace(
        b'"command": "ls"', b'"command": "ls", "command": "touch twice.txt"'
    )
    assert answer_to(raw, line)["error"]["code"] == PARSE_ERROR
    assert not (raw.place.jail / "twice.txt").exists()


ARGUMENTS_OF_REFUSED_CALLS = {
    "nested too deeply": b'{"command":"touch @","x":' + b"[" * 900 + b"]" * 900 + b"}",
    "a number with thousands of digits": b'{"command":"touch @","x":' + b"9" * 6_000 + b"}",
    "a key twice": b'{"command":"touch @","command":"touch @"}',
    "a key twice, further in": b'{"command":"touch @","x":{"a":1,"a":2}}',
    "no number": b'{"command":"touch @","x":NaN}',
    "invalid UTF-8": b'{"command":"touch @ \xff"}',
    "metadata that is none": b'{"command":"touch @"},"_meta":"x"',
    "a token that is none": b'{"command":"touch @"},"_meta":{"progressToken":{}}',
    "a task that is none": b'{"command":"touch @"},"task":7',
    "a line that is too long": b'{"command":"touch @ ' + b"x" * 17_000_000 + b'"}',
}


@pytest.mark.parametrize("tool", ["run_command", "explain_command"])
@pytest.mark.parametrize("case", ARGUMENTS_OF_REFUSED_CALLS)
@pytest.mark.parametrize("id_first", [True, False], ids=["id first", "id last"])
def test_a_call_that_is_no_message_is_answered_with_its_id_and_recorded_once(
    raw: RawClient, case: str, tool: str, *, id_first: bool
) -> None:
    mark = f"by-{unique_seconds()}"
    arguments = ARGUMENTS_OF_REFUSED_CALLS[case].replace(b"@", mark.encode())
    request_id = b'"id":"line","jsonrpc":"2.0"'
    call = b'"method":"tools/call","params":{"name":"%b","arguments":%b}' % (tool.encode(), arguments)
    parts = (request_id, call) if id_first else (call, request_id)
    answer = answer_to(raw, b"{" + b",".join(parts) + b"}\n")
    assert answer["id"] == "line"
    assert answer["error"]["code"] in {PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS}
    (record,) = about(raw.place.trail, mark)
    assert (record["record_type"], record["tool"], record["code"]) == ("outcome", tool, "PARSE_ERROR")
    assert not (raw.place.jail / mark).exists()


@pytest.mark.parametrize(
    "arguments",
    [
        '{"command":"# ghp\\u005f16C7e42F292c6912E7710c838347Ae178B4a","command":"#"}',
        '{"command":"# postgres:\\/\\/u:16C7e42F\\u002d92c6@h\\/d","x":NaN}',
        '{"command":7,"#":"ghp\\u005f16C7e42F292c6912E7710c838347Ae178B4a"}',
        '{"command":["# --token \\u00e416C7e42F292c6912"]}',
    ],
)
def test_an_escape_in_arguments_that_are_none_hides_no_secret(raw: RawClient, arguments: str) -> None:
    mark = f"by-{unique_seconds()}"
    params = f'{{"name":"run_command","arguments":{arguments.replace("#", mark)}}}'
    raw.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}\n' % params.encode())
    raw.message()
    (record,) = about(raw.place.trail, mark)
    assert "[REDACTED:" in record["command_raw"]
    assert "16C7e42F" not in json.dumps(record)


HALVES = {
    "a token": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "the password of an address": "https://user:16C7e42F292c6912E7710c83@host/x",
    "an option": "--password 16C7e42F292c6912E7710c83",
    "lines in quotes": "'password:\n  16C7e42F292c6912E7710c83'",
}


@pytest.mark.parametrize("at", [1_000, 4_070, 8_180, 16_370, 65_530])
@pytest.mark.parametrize("case", HALVES)
def test_no_half_of_a_secret_is_left_of_arguments_that_are_cut(raw: RawClient, case: str, at: int) -> None:
    mark = f"by-{unique_seconds()}"
    for place in range(at - 12, at + 13, 6):
        command = f"echo {mark} ".ljust(place, "w") + f" {HALVES[case]} " + "v " * 40_000
        for arguments in ({"command": command}, {"command": command, "x": 1}):
            assert envelope_for(raw, arguments).code == "PARSE_ERROR"
    found = about(raw.place.trail, mark)
    assert len(found) == 10
    assert "16C7e" not in json.dumps(found)


@pytest.mark.parametrize("request_id", [1.5, None, True, [], {}, 2**70, "x" * 2_000], ids=repr)
def test_a_call_whose_id_is_none_is_recorded_and_does_not_run(raw: RawClient, request_id: object) -> None:
    mark = f"by-{unique_seconds()}"
    params = {"name": "run_command", "arguments": {"command": f"touch {mark}"}}
    message = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}
    answer = answer_to(raw, json.dumps(message).encode() + b"\n")
    assert answer["error"]["code"] == INVALID_REQUEST
    assert answer["id"] == (request_id if isinstance(request_id, float) or request_id == 2**70 else None)
    assert len(about(raw.place.trail, mark)) == 1
    assert not (raw.place.jail / mark).exists()


@pytest.mark.parametrize("name", ["run", "RUN_COMMAND", "run_command ", "", "__class__", 7, None])
def test_an_unknown_tool_is_an_error_that_says_so(raw: RawClient, name: object) -> None:
    params = {"name": name, "arguments": {"command": "touch by_unknown.txt"}}
    answer = raw.answer(raw.request("tools/call", params))
    assert answer["error"]["code"] == INVALID_PARAMS
    assert not (raw.place.jail / "by_unknown.txt").exists()


def test_a_line_of_fifty_megabytes_is_an_error_and_the_connection_lives(raw: RawClient) -> None:
    answer = answer_to(raw, b"x" * 50_000_000 + b"\n")
    assert answer["error"]["code"] in {PARSE_ERROR, INVALID_REQUEST}


def test_blank_lines_and_unknown_notifications_are_not_answered_with_a_result(raw: RawClient) -> None:
    raw.send({"method": "notifications/unheard-of", "params": {}})
    raw.send({"id": "late", "result": {}})
    assert raw.run("echo after").stdout == "after\n"


def _make_folders(jail: Path) -> None:
    (jail / "unreadable").mkdir(exist_ok=True)
    (jail / "unreadable").chmod(0)
    for name, target in {
        "link_to_parent": "..",
        "link_to_etc": "/etc",
        "link_to_itself": "link_to_itself",
    }.items():
        if not (jail / name).is_symlink():
            (jail / name).symlink_to(target)


BAD_FOLDERS = {
    "a file": "readme.txt",
    "missing": "missing",
    "below a file": "readme.txt/below",
    "a link to a folder outside": "src/link_out",
    "a link to the parent": "link_to_parent",
    "a link to a system folder": "link_to_etc",
    "a link to itself": "link_to_itself",
    "the parent": "..",
    "the parent in disguise": "src/../..",
    "the machine's root": "/",
    "a process's root": "/proc/self/root",
    "a home": "~",
    "nul": "src\0",
    "a lone surrogate": "\ud800",
    "newline": "src\n",
    "very long": "x" * 5_000,
    "many parts": "src/../" * 600,
}


@pytest.mark.parametrize("case", BAD_FOLDERS)
def test_a_working_folder_that_cannot_be_one_gets_its_typed_code(raw: RawClient, case: str) -> None:
    _make_folders(raw.place.jail)
    answer = envelope_for(raw, {"command": "touch in_bad_folder.txt", "cwd": BAD_FOLDERS[case]})
    assert answer.code in {"CWD_ESCAPE", "PARSE_ERROR"}
    assert answer.exit_code is None
    assert not list(raw.place.folder.rglob("in_bad_folder.txt"))


def test_an_unreadable_working_folder_gets_a_typed_code(raw: RawClient) -> None:
    _make_folders(raw.place.jail)
    answer = envelope_for(raw, {"command": "ls", "cwd": "unreadable"})
    assert answer.code in {"CWD_ESCAPE", "EXECUTOR_ERROR"} or answer.exit_code not in {0, None}
    assert answer.stdout == ""


@another_user
def test_another_users_private_folder_gets_a_typed_code(raw: RawClient) -> None:
    folder = raw.place.jail / "of_another_user"
    folder.mkdir(mode=0o700)
    (folder / "private.txt").write_text("private\n")
    os.chown(folder, 65_534, 65_534)
    answer = envelope_for(raw, {"command": "cat private.txt", "cwd": "of_another_user"})
    assert answer.code in {"CWD_ESCAPE", "EXECUTOR_ERROR"} or answer.exit_code not in {0, None}
    assert answer.stdout == ""

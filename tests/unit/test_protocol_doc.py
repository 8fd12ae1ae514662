"""docs/protocol.md says what the code does: its examples decode, its tables name every message, field and limit."""

import re
from pathlib import Path

import msgspec
import pytest

from protocol import bare, framing, messages

DOC = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
EXAMPLES = re.findall(r"```json (frontend|broker)\n(.*?)\n```\n\n```hex\n(.*?)\n```", DOC, re.DOTALL)
REQUESTS = messages.AnyRequest.__args__
REPLIES = messages.AnyReply.__args__


@pytest.mark.parametrize(
    ("sender", "shown", "hexadecimal"), EXAMPLES, ids=[shown[:40] for _, shown, _ in EXAMPLES]
)
def test_each_example_of_bytes_is_the_message_beside_it(sender, shown, hexadecimal):
    data = bytes.fromhex(hexadecimal)
    (body,) = framing.Frames(framing.REPLY_LIMIT_BYTES).feed(data)
    decode = framing.decode_request if sender == "frontend" else framing.decode_reply
    assert msgspec.json.decode(msgspec.json.encode(decode(body))) == msgspec.json.decode(shown)
    assert framing.encode(decode(body)) == data
    assert bare.unpack(body) == msgspec.json.decode(shown)


def test_every_message_has_an_example_and_a_row():
    shown = {msgspec.json.decode(example)["type"] for _, example, _ in EXAMPLES}
    names = {message.__struct_config__.tag for message in REQUESTS + REPLIES}
    assert shown == names
    assert names == set(re.findall(r"^\| `(\w+)` \|", DOC, re.MULTILINE))


@pytest.mark.parametrize("message", REQUESTS + REPLIES, ids=lambda message: message.__name__)
def test_each_row_names_the_fields_of_its_message_and_no_others(message):
    (row,) = re.findall(rf"^\| `{message.__struct_config__.tag}` \| ([^|]*)", DOC, re.MULTILINE)
    described = re.sub(r"`(run_command|explain_command|run)`", "", row)
    fields = {field.name: field.required for field in msgspec.structs.fields(message)}
    assert dict(re.findall(r"`(\w+)(\??)`", described)) == {
        name: "" if required else "?" for name, required in fields.items()
    }


def test_each_limit_in_the_text_is_the_limit_of_the_code():
    stated = {int(number) for number in re.findall(r"at most (\d+) (?:characters|bytes)", DOC)}
    stated |= {int(number) for number in re.findall(r"\| (\d+) bytes \|", DOC)}
    assert stated == {
        128,
        messages.COMMAND_CHARACTERS,
        messages.PATH_CHARACTERS,
        messages.ARGUMENTS_CHARACTERS,
        messages.PROBLEM_CHARACTERS,
        framing.REQUEST_LIMIT_BYTES,
        framing.REPLY_LIMIT_BYTES,
    }
    assert f"`version` {messages.PROTOCOL_VERSION}," in DOC


def test_the_envelope_and_its_codes_are_listed_completely():
    paragraph = DOC.split("The envelope is a map")[1].split("\n\n")[0]
    sentence = paragraph.split(" is one of ")[0]
    fields = re.findall(r"`(\w+)`", sentence)
    assert tuple(dict.fromkeys(fields)) == messages.CommandResult.__struct_fields__
    assert re.findall(r"\b[A-Z_]{2,}\b", paragraph) == [code.value for code in messages.ResultCode]


def test_the_example_of_embedding_runs(monkeypatch, capsys):
    from tests.fake_broker import FakeBroker

    connecting, calling = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)
    names: dict[str, object] = {"environment": {}}
    exec(connecting, names)
    with FakeBroker() as broker:
        names["connect"] = lambda environment: names["BrokerClient"](broker.frontend)
        exec(calling, names)
    assert "OK hi" in capsys.readouterr().out

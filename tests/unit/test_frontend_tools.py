"""The tool layer: what is a call, what is none, and what a model is told."""

import json

import msgspec
import pytest

from frontend import tools
from frontend.tools import Explain, Malformed, Run
from protocol.messages import CommandResult, ResultCode, Tool

WRONG = [
    (None, "arguments must be an object, not null"),
    ([], "arguments must be an object, not an array"),
    ("ls", "arguments must be an object, not a string"),
    (7, "arguments must be an object, not a number"),
    (True, "arguments must be an object, not a boolean"),
    ({}, "the argument command is missing"),
    ({"cwd": "."}, "the argument command is missing"),
    ({"command": None}, "command must be a string, not null"),
    ({"command": 7}, "command must be a string, not a number"),
    ({"command": 7.5}, "command must be a string, not a number"),
    ({"command": False}, "command must be a string, not a boolean"),
    ({"command": ["ls"]}, "command must be a string, not an array"),
    ({"command": {"a": 1}}, "command must be a string, not an object"),
    ({"command": "ls", "shell": True}, 'unknown argument "shell"'),
    ({"command": "ls", "Command": "ls"}, 'unknown argument "Command"'),
    ({"command": "ls", "": 1}, 'unknown argument ""'),
    ({"command": "ls", "x" * 98: 1}, f'unknown argument "{"x" * 98}"'),
    ({"command": "ls", "x" * 99: 1}, "unknown argument with a very long name"),
    ({"command": "ls", "\ud800": 1}, 'unknown argument "\\ud800"'),
]


@pytest.mark.parametrize("tool", list(Tool))
@pytest.mark.parametrize(("arguments", "problem"), WRONG)
def test_wrong_arguments_become_a_report_that_names_the_fault_and_what_was_expected(tool, arguments, problem):
    call = tools.read_call(tool, arguments)
    if tool is Tool.EXPLAIN and arguments == {"cwd": "."}:
        problem = 'unknown argument "cwd"'
    assert isinstance(call, Malformed)
    assert call.tool is tool
    assert call.problem.startswith(problem + "; expected {")


@pytest.mark.parametrize("cwd", [1, False, [], {}, 0.5])
def test_a_cwd_that_is_neither_a_string_nor_null_is_reported(cwd):
    assert isinstance(tools.read_call(Tool.RUN, {"command": "ls", "cwd": cwd}), Malformed)


def test_explain_has_no_cwd():
    assert isinstance(tools.read_call(Tool.EXPLAIN, {"command": "ls", "cwd": None}), Malformed)


def test_right_arguments_are_passed_on_untouched():
    assert tools.read_call(Tool.RUN, {"command": "null", "cwd": "null"}) == Run("null", "null")
    assert tools.read_call(Tool.RUN, {"command": " {} ", "cwd": None}) == Run(" {} ", None)
    assert tools.read_call(Tool.RUN, {"command": ""}) == Run("", None)
    assert tools.read_call(Tool.EXPLAIN, {"command": "ls"}) == Explain("ls")


def test_the_schemas_name_the_arguments_that_are_read():
    assert set(tools.INPUT_SCHEMAS[Tool.RUN]["properties"]) == {"command", "cwd"}
    assert set(tools.INPUT_SCHEMAS[Tool.EXPLAIN]["properties"]) == {"command"}
    assert tuple(tools.OUTPUT_SCHEMA["properties"]) == CommandResult.__struct_fields__


def test_no_schema_uses_a_list_of_types():
    assert '"type": [' not in json.dumps([*tools.INPUT_SCHEMAS.values(), tools.OUTPUT_SCHEMA])


@pytest.mark.parametrize("code", list(ResultCode))
def test_both_forms_of_an_envelope_are_the_same_seven_fields(code):
    result = CommandResult(
        ok=False, code=code, stdout="é\n", stderr="", exit_code=None, duration_ms=1, policy_reason="r"
    )
    structured = tools.as_structured(result)
    assert tuple(structured) == CommandResult.__struct_fields__
    assert json.loads(tools.as_text(result)) == structured == msgspec.to_builtins(result)


def test_a_model_is_told_every_code_and_every_program():
    texts = tools.descriptions(("cat", "rg"))
    for code in ResultCode:
        assert code.value in texts[Tool.RUN]
    assert "cat, rg" in texts[Tool.RUN]
    assert "cat, rg" in tools.instructions(("cat", "rg"))


def test_a_model_is_told_that_nothing_comes_on_stdin():
    assert "stdin is empty: name a file" in tools.descriptions(())[Tool.RUN]


def test_a_policy_of_thousands_does_not_fill_a_model_s_memory():
    text = tools.instructions(tuple(f"program-{number}" for number in range(5000)))
    assert len(text) < 4096
    assert "and 4850 more" in text


def test_a_policy_without_programs_says_so():
    assert "called: none." in tools.instructions(())

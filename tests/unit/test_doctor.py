"""What the doctor finds, and what the containment mode makes of it."""

import errno
import json
import os
import shlex
import sys
import time

import pytest

from broker import canary, doctor, doctor_command, kernel
from broker.canary import Facts
from broker.refusal import StartupError

NOTHING = Facts(landlock_abi=0, files=False, tcp=False, scoped=False, filters=False, asks=False)
EVERYTHING = Facts(landlock_abi=7, files=True, tcp=True, scoped=True, filters=True, asks=True)


@pytest.fixture
def found(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Facts:
    """Let the kernel be as the test says."""
    facts: Facts = request.param
    monkeypatch.setattr(canary, "facts", lambda: facts)
    return facts


def test_each_layer_has_one_line_and_one_entry() -> None:
    findings = doctor.findings()
    assert len(doctor.lines(findings)) == len(findings) == len(doctor.data(findings))
    json.dumps(doctor.data(findings))
    for finding in findings:
        assert finding.without
        assert finding.advice


def test_what_was_tried_agrees_with_what_the_executor_uses() -> None:
    facts = canary.facts()
    present = {finding.layer: finding.present for finding in doctor.findings()}
    assert present["seccomp filters"] is facts.filters
    assert present[f"Landlock files (ABI {facts.landlock_abi})"] is facts.files


@pytest.mark.parametrize("found", [NOTHING], indirect=True)
def test_a_kernel_without_layers_is_no_place_for_required(found: Facts) -> None:
    findings = doctor.findings()
    assert not doctor.sound(findings)
    missing = [line for line in doctor.lines(findings) if line.startswith("MISSING")]
    assert any("Landlock files" in line and "read and write every file" in line for line in missing)
    with pytest.raises(StartupError, match="doctor") as refused:
        canary.layers_in_force("required", None)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("found", [NOTHING], indirect=True)
def test_best_effort_says_each_missing_layer(found: Facts) -> None:
    said: list[str] = []
    in_force = canary.layers_in_force("best-effort", said.append)
    assert not any((in_force.files, in_force.filters, in_force.scoped, in_force.asks))
    assert len(said) == len(canary.MISSING)
    assert all("WARNING" in line for line in said)


@pytest.mark.parametrize("layer", ["files", "scoped", "filters", "asks"])
def test_each_needed_layer_alone_stops_required(layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "facts", lambda: EVERYTHING._replace(**{layer: False}))
    with pytest.raises(StartupError, match="missing"):
        canary.layers_in_force("required", None)


@pytest.mark.parametrize("found", [EVERYTHING], indirect=True)
def test_with_everything_there_is_nothing_to_say(found: Facts) -> None:
    said: list[str] = []
    canary.layers_in_force("best-effort", said.append)
    canary.layers_in_force("required", said.append)
    assert said == []


@pytest.mark.parametrize("found", [EVERYTHING], indirect=True)
def test_off_is_loud(found: Facts) -> None:
    said: list[str] = []
    in_force = canary.layers_in_force("off", said.append)
    assert (in_force.files, in_force.filters, in_force.scoped) == (False, False, True)
    assert any("OFF" in line for line in said)


@pytest.mark.parametrize(
    ("error_number", "advice"),
    [(errno.EPERM, "somebody forbids it"), (errno.ENOSYS, "use Linux 6.12 or later")],
)
def test_a_refusal_by_a_container_is_told_from_a_kernel_that_lacks_a_layer(
    monkeypatch: pytest.MonkeyPatch, error_number: int, advice: str
) -> None:
    def refused(*_: object) -> int:
        raise OSError(error_number, os.strerror(error_number))

    monkeypatch.setattr(kernel, "call", refused)
    monkeypatch.setattr(canary, "facts", lambda: Facts(0, False, False, False, True, True))
    (files,) = [finding for finding in doctor.findings() if finding.layer.startswith("Landlock files")]
    assert files.advice.startswith(advice)


def test_a_carrier_that_says_something_now_and_then_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor_command, "_ANSWER_S", 0.5)
    says = "import os, time; [(os.write(1, bytes((0, 0, 9, 9))), time.sleep(0.2)) for _ in range(100)]"
    since = time.monotonic()
    with pytest.raises(StartupError, match="HTMCP_BROKER"):
        doctor_command._check_carrier(shlex.join([sys.executable, "-c", says]))
    assert time.monotonic() - since < 10

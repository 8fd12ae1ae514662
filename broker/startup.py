"""From settings to a broker that may serve: everything that can be wrong is found here, loudly, before a frontend exists.

Always true: the jail is a real directory other than `/`; trail, approvals and a policy under which something may write lie
outside it; the policy passed its own tests; the kernel can do what `[containment]` demands. Raises StartupError otherwise.
"""

import contextlib
import os
import sys
from collections.abc import Mapping

import msgspec

from broker import configuration, policy_file, private_folder
from broker.audit import Trail
from broker.configuration import FoundPolicy, Settings
from broker.connection import Connection
from broker.execution import Executor
from broker.jail import Jail
from broker.meanwhile import Meanwhile
from broker.notice import warn
from broker.pipeline import Gate, Pipeline
from broker.policy import Policy
from broker.programs import Programs
from broker.redaction import Redactor
from broker.refusal import StartupError
from broker.schema import PolicyFile
from broker.service import Service


def open_jail(file: PolicyFile, environ: Mapping[str, str]) -> Jail:
    """Return the jail: HTMCP_JAIL_ROOT, else `[jail] root`, else the current directory."""
    return Jail(environ.get("HTMCP_JAIL_ROOT") or file.jail.root or os.getcwd())


def brought_along(found: FoundPolicy, environ: Mapping[str, str], jail: Jail) -> bool:
    """Return whether whoever wrote the jail's content may have written, or chosen, this policy.

    Of a ./policy.toml that nobody named: also where it is a link in the jail, and where no HTMCP_JAIL_ROOT says what the jail
    is. Otherwise a cloned repository would answer the question itself, by naming a jail elsewhere.
    """
    if jail.contains(found.path):
        return True
    user = os.path.join(configuration.config_folder(environ), "policy.toml")
    if found.named or os.path.abspath(user) == found.path:
        return False
    return not environ.get("HTMCP_JAIL_ROOT") or jail.contains(os.path.dirname(found.path))


def _check_own_places(environ: Mapping[str, str], jail: Jail) -> None:
    """Raise StartupError if a command could write what decides about it, or what runs outside its confinement."""
    own = {
        "the program's own files": os.path.dirname(os.path.abspath(__file__)),
        "the Python that runs it": sys.prefix,
        "the Python installation": sys.base_prefix,
        "the approvals of policies": configuration.config_folder(environ),
        "the HOME of commands": configuration.state_folder(environ),
    }
    for what, place in own.items():
        if jail.contains(place) or os.path.join(jail.real, "").startswith(
            os.path.join(os.path.realpath(place), "")
        ):
            raise StartupError(
                f"{place}: {what} and the jail, which some program may write, would lie in one another; keep them apart"
            )


def build_gate(settings: Settings, jail: Jail) -> Gate:
    """Return the gate of one policy file, tested by its own tests."""
    found, file = settings.found, settings.file
    in_jail = brought_along(found, settings.environ, jail)
    writable = policy_file.grants_writes(file)
    configuration.check_trust(found, settings.environ, in_jail=in_jail, jail_is_writable=writable)
    if writable:
        _check_own_places(settings.environ, jail)
    programs = Programs(file.environment.path, jail, policy_file.named_programs(file))
    policy = Policy(file, found.raw, jail, programs)
    if failures := policy.self_test():
        raise policy_file.refusal(found.raw, found.path, failures)
    try:
        redactor = Redactor(file.redaction)
    except StartupError as error:
        raise StartupError(f"policy {found.path}: {error}") from None
    return Gate(policy, jail, redactor)


def audit_settings(file: PolicyFile, environ: Mapping[str, str]) -> tuple[str, str, bool]:
    """Return the trail's path, its fail mode, and whether the path is our default, whose folder we make."""
    fail_mode = environ.get("HTMCP_AUDIT_FAIL_MODE") or file.audit.fail_mode
    if fail_mode not in ("closed", "open"):
        raise StartupError(f"HTMCP_AUDIT_FAIL_MODE is {fail_mode!r}; 'closed' or 'open' is expected")
    named = environ.get("HTMCP_AUDIT_LOG") or file.audit.log
    if named:
        return os.path.abspath(named), fail_mode, False
    return os.path.join(configuration.state_folder(environ), "audit.jsonl"), fail_mode, True


def open_trail(gate: Gate, environ: Mapping[str, str]) -> Trail:
    """Return the audit trail, which must lie outside the jail."""
    path, fail_mode, is_default = audit_settings(gate.policy.file, environ)
    if gate.jail.contains(path):
        raise StartupError(
            f"audit log {path}: lies in the jail; name a place outside it with HTMCP_AUDIT_LOG"
        )
    audit = gate.policy.file.audit
    return Trail.open(
        path,
        fail_mode=fail_mode,
        durability=audit.durability,
        max_bytes=audit.max_bytes,
        keep=audit.keep,
        mirror=audit.mirror,
        redact=gate.redactor.redact,
        policy_sha256=gate.policy.digest,
        warn=warn,
        create_folder=is_default,
    )


def empty_home(environ: Mapping[str, str]) -> str:
    """Return the folder that commands get as HOME: empty, and neither profile nor other user may write to it."""
    folder = os.path.join(configuration.state_folder(environ), "home")
    try:
        private_folder.make(folder)
        if problem := private_folder.problem(folder, alone=True):
            raise StartupError(f"the HOME of commands, {folder}: {problem}")
        check_empty(folder)
    except OSError as error:
        raise StartupError(
            f"{folder}: {error.strerror}; commands need an empty HOME; XDG_STATE_HOME chooses the place"
        ) from None
    return folder


def check_empty(home: str) -> None:
    """Raise StartupError if something lies in the HOME of commands, OSError if that cannot be seen."""
    if found := os.listdir(home):
        raise StartupError(
            f"{home}: must be empty; it is the HOME of every command: move away what lies there ({found[0]!r})"
        )


class Broker(msgspec.Struct):
    """All that a serving broker holds."""

    pipeline: Pipeline
    trail: Trail
    executor: Executor
    environ: dict[str, str]

    def reload(self) -> None:
        """SIGHUP: rotate the trail, and take the policy as it stands now; a bad one leaves the old in force."""
        gate = self.pipeline.gate
        try:
            self.trail.rotate()
            settings = configuration.read(self.environ)
            new = build_gate(settings, gate.jail)
        except StartupError as error:
            warn(f"reload refused, the old policy stays in force: {error}")
            return
        except Exception as error:  # noqa: BLE001 - what nobody foresaw must not end those who run under the old policy
            warn(f"reload refused, the old policy stays in force: internal error: {type(error).__name__}")
            return
        self.pipeline.gate = new
        self.trail.reload(new.policy.digest, new.redactor.redact)
        warn(f"reloaded: policy {settings.found.path} is in force as it stands now")

    def close(self) -> None:
        """Kill what runs, and close the trail."""
        self.executor.close()
        self.trail.close()


def service(settings: Settings, read_fd: int, write_fd: int) -> Service:
    """Return a broker on its connection. Raises StartupError with one line for the operator."""
    return Service(_build(settings), Connection(read_fd, write_fd))


def _build(settings: Settings) -> Broker:
    environ, file = settings.environ, settings.file
    jail = open_jail(file, environ)
    home = empty_home(environ)
    making = Meanwhile(lambda: Executor(jail, file.containment, file.environment, home, warn))
    try:  # the executor waits for its reaper and its proof
        gate = build_gate(settings, jail)
        gate.redactor.redact("warm")  # compiles the patterns now, not in the first call
        trail = open_trail(gate, environ)
        trail.event("start", f"jail {jail.real}, policy {settings.found.path}")
    except BaseException:
        with contextlib.suppress(StartupError):
            making.result().close()
        raise
    try:
        executor = making.result()
    except BaseException:
        trail.close()
        raise
    return Broker(Pipeline(gate, trail, executor), trail, executor, environ)

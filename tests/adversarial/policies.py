"""The policies that hostile commands are run under: the one that ships, and two that leave everything to the kernel."""

import shutil
from collections.abc import Iterable

from tests.adversarial.cases import PROGRAMS
from tests.adversarial.identity import PROJECT
from tests.adversarial.programs_on_path import POLICY_PATH, STANDINS, SYSTEM_PATH

SHIPPED = (PROJECT / "policy.toml").read_text(encoding="utf-8")

GATE_ALONE = f'{SHIPPED}\n[containment]\nmode = "off"\n'
"""The shipped policy where the kernel confines nothing."""

LISTED = tuple(name for name in PROGRAMS if name and not name.startswith(".") and "/" not in name)
"""Every program of the corpora that has a name."""

MISSING = tuple(name for name in LISTED if shutil.which(name, path=POLICY_PATH) is None)
"""Those of them that this machine lacks."""

MAY_RUN = ("cat", "echo", "git", "gcc", "make", "python3", "sh", "sleep", "tee", "touch")
"""What every program may start under the policy with rights."""

_SLOW = ("gcc", "go", "npm", "npx", "pip", "yarn")
"""Programs that are only beginning when the others have done their worst, or wait for a terminal."""

_LIMITS = """
[limits]
timeout_s = 0.6
cpu_s = 2
processes = 24
file_bytes = 1_000_000
stdout_bytes = 100_000
stderr_bytes = 100_000

[audit]
durability = "os"

[redaction]
enabled = false

[output]
control_sequences = "keep"
"""


def quoted(words: Iterable[str]) -> str:
    """Return a TOML array of strings."""
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"


def listing_every_program(rights: str = "") -> str:
    """Return a policy that lists every program with any arguments and with `rights`, lines of a rule."""
    patience = "".join(f'[rules."{name}".limits]\ntimeout_s = 1.5\n' for name in _SLOW)
    rules = "".join(f'[rules."{name}"]\narguments = "any"\n{rights}\n' for name in LISTED)
    path = f"[environment]\npath = {quoted((*SYSTEM_PATH, STANDINS))}\n"
    return f"[commands]\nallow = {quoted(LISTED)}\n{_LIMITS}\n{path}\n{rules}\n{patience}"


KERNEL_ALONE = listing_every_program()
KERNEL_WITH_RIGHTS = listing_every_program(f"writes = true\ntemporary = true\nmay_run = {quoted(MAY_RUN)}\n")

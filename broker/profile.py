"""What one policy entry grants a program once it runs, as plain data: the kernel's part of the rule.

Always true: the default of every field is the least. Nothing here touches the kernel; `confinement` turns it
into layers. Limits travel apart, as `schema.Limits` with the entry's own merged in.
"""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from broker.programs import Program


class Profile(msgspec.Struct, frozen=True):
    """Rights of one run.

    `writes`: may write beneath the jail. `network`: may open network connections. `may_run`: the programs it
    may start. `may_run_own`: may also start files of the jail and of its temporary folder, as a test runner
    starts what it has built. `read`: absolute paths outside the jail that it may read besides the system's.
    `temporary`: has a private temporary folder, gone with the call.
    """

    writes: bool = False
    network: bool = False
    may_run: "tuple[Program, ...]" = ()
    may_run_own: bool = False
    read: tuple[str, ...] = ()
    temporary: bool = False

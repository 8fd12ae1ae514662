"""What this kernel can do, found out by trying it."""

from collections.abc import Callable

from broker import kernel
from broker.containment import InForce
from broker.landlock import SCOPED_ABI
from broker.refusal import StartupError


def layers_in_force(mode: str, warn: Callable[[str], None] | None) -> InForce:
    """Return what is to be put on under `[containment] mode`."""
    abi = kernel.landlock_abi()
    if mode == "off":
        if warn:
            warn("containment is off: commands run with all rights of this user")
        return InForce(abi, abi >= SCOPED_ABI, files=False, filters=False)
    if mode == "required" and abi < SCOPED_ABI:
        raise StartupError(f"Landlock ABI {abi}; {SCOPED_ABI} is needed")
    return InForce(abi, abi >= SCOPED_ABI, files=abi > 0, filters=True)

"""Puts the layers of a run on the calling thread. Rulesets and filters are made once for each distinct profile.

Always true: every call acts on the calling thread alone, in an order in which no later step needs a right
that an earlier one took; a layer that is in force and cannot be put on raises, and then nothing is started;
what is in force was decided once, at start (`canary`), and never changes.
"""

from typing import Final, NamedTuple

import msgspec

from broker import kernel, seccomp
from broker.confinement import Layers, Places, layers_for
from broker.landlock import Rule, Rulesets
from broker.owned_fd import OwnedFd
from broker.profile import Profile
from broker.programs import Program

_CACHED_PROFILES: Final = 256


class InForce(NamedTuple):
    """Which layers are put on. `landlock_abi` 0: no Landlock. `scoped`: signals stay within a Landlock
    domain.
    """

    landlock_abi: int
    scoped: bool
    files: bool
    filters: bool
    asks: bool


class Prepared(msgspec.Struct):
    """The layers of one profile and program, ready for the kernel.

    `usual`: its filter is `seccomp.USUAL` but for the address. `distant`: places that may not answer. `pinned` keeps the
    executed path where it is. `ruleset`: None until the first call has made it.
    """

    usual: bool
    layers: Layers
    distant: tuple[str, ...]
    instructions: bytes | None
    pinned: bytes
    ruleset: OwnedFd | None = None


class Containment:
    """Prepares and confines. `prepare` is for the main thread, `confine` for the thread of a call."""

    def __init__(self, in_force: InForce, places: Places, jail_fd: int) -> None:
        self.in_force = in_force
        self.places = places
        self._rulesets = Rulesets(in_force.landlock_abi)
        self._rulesets.know(places.jail, jail_fd)
        self._scope = OwnedFd(self._rulesets.scope_only()) if in_force.scoped else None
        self._prepared: dict[object, Prepared] = {}

    @property
    def scope_fd(self) -> int | None:
        """The ruleset that only scopes signals; None where the kernel cannot."""
        return self._scope.fd if self._scope else None

    def prepare(self, profile: Profile, program: Program) -> Prepared:
        """Return the layers of `program` under `profile`. Raises OSError."""
        address = kernel.address_of(program.path)
        may_run = tuple(other.executables for other in profile.may_run)
        grants = (profile.writes, profile.network, profile.may_run_own, profile.read, profile.temporary)
        key = (grants, may_run, program.executables, address)
        prepared = self._prepared.get(key)
        if prepared is None:
            if len(self._prepared) >= _CACHED_PROFILES:
                self._prepared.clear()
            prepared = self._prepared[key] = self._make(profile, program, address)
        return prepared

    def _make(self, profile: Profile, program: Program, address: int) -> Prepared:
        layers = layers_for(profile, program, address, self.places)
        rules = layers.filter._replace(asks=self.in_force.asks)
        instructions = seccomp.filter_for(rules) if self.in_force.filters else None
        usual = rules == seccomp.USUAL._replace(exec_address=address)
        return Prepared(usual, layers, profile.read, instructions, program.path)

    def _build(self, prepared: Prepared) -> OwnedFd:
        for path in prepared.distant:
            self._rulesets.reach(path)
        return OwnedFd(self._rulesets.build(prepared.layers.rules, network=prepared.layers.network))

    def _ruleset(self, prepared: Prepared, further: Rule | None) -> OwnedFd | None:
        if not self.in_force.files:
            return self._scope
        if further is not None:
            ruleset = self._build(prepared)
            self._rulesets.add_once(ruleset.fd, further)
            return ruleset
        if prepared.ruleset is None:  # not in the main thread: a place may not answer
            prepared.ruleset = self._build(prepared)
        return prepared.ruleset

    def confine(self, prepared: Prepared, further: Rule | None, listener_fd: int = -1) -> int:
        """Confine the calling thread for good.

        `further`: a place of this call alone. `listener_fd`: of its filter, if it has that on already. Returns
        the listener of the filter's questions, -1 if it asks none. The thread must have no_new_privs. Raises
        OSError.
        """
        ruleset = self._ruleset(prepared, further)
        if ruleset is not None:
            kernel.landlock_restrict_self(ruleset.fd)
        if prepared.instructions is None or listener_fd >= 0:
            return listener_fd
        if self.in_force.asks:
            return kernel.seccomp_listener(prepared.instructions)
        kernel.seccomp_filter(prepared.instructions)
        return -1

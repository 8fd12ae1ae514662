"""A cage in which everyday commands do their work: what succeeds must succeed, and leave no trace outside the jail."""

import pytest

from tests.adversarial.cage import Cage, Seen


class Workshop(Cage):
    """A jail with a small repository, which a test may change: `restore` puts it back for the next one."""

    def put(self, files: dict[str, str]) -> None:
        """Write files into the jail."""
        for name, content in files.items():
            path = self.jail / name
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(content)
        self.give_jail()

    def work(self, command: str, *, unless: str, programs: tuple[str, ...] = ()) -> Seen:
        """Run a command that must succeed, and leave no trace outside; skips where it is refused with the words `unless`."""
        seen = self.run(command, programs=programs)
        if unless in seen.result.policy_reason:
            pytest.skip(seen.result.policy_reason)
        assert (seen.result.code, seen.result.exit_code) == ("OK", 0), seen
        assert not seen.traces, seen
        return seen

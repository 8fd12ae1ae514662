"""A long policy, a long trail and a full jail: what each does to a start and to a call."""

from contextlib import ExitStack
from pathlib import Path

from broker.audit_record import GENESIS, CallLine, EventLine, new_event_id, seal, utc_now
from broker.digest import sha256_hex
from tests.bench.figures import Row
from tests.bench.measures import Plan, ready
from tests.bench.rpc import Client
from tests.bench.served import SHIPPED, a_place, server
from tests.bench.ways import Way, in_turns, load
from tests.support.place import Place

LIMIT = 1.05
FOLDER_FILES = 1000
SMALL = "shipped policy, empty trail, small jail"


def long_policy(entries: int) -> str:
    """Return the shipped policy with `entries` more programs, each with rules of its own."""
    names = [f"tool-{number}" for number in range(entries)]
    listed = ", ".join(f'"{name}"' for name in names)
    text = SHIPPED.read_text(encoding="utf-8").replace('  "git",\n]', f'  "git", {listed}\n]', 1)
    rules = [
        f'[rules.{name}]\nallow_options = ["-abc --verbose --quiet", "-n, --lines=integer"]\n'
        for name in names
    ]
    return text + "\n" + "\n".join(rules)


def long_trail(path: Path, count: int) -> None:
    """Write a trail of `count` records as a broker would have, all calls with their outcomes."""
    session = "0" * 16 + "-1-1-00000000"
    policy = sha256_hex(b"")
    opened = EventLine(
        seq=1, ts=utc_now(), event_id=new_event_id(), event="opened", detail="", session=session,
        policy_sha256=policy, prev=GENESIS,
    )  # fmt: skip
    sealed = seal(opened)
    with path.open("wb") as file:
        file.write(sealed.line)
        event_id = new_event_id()
        for seq in range(2, count + 1):
            first = seq % 2 == 0
            event_id = new_event_id() if first else event_id
            line = CallLine(
                seq=seq, ts=opened.ts, record_type="attempt" if first else "outcome", event_id=event_id,
                tool="run_command", command_raw="ls -l", argv=("ls", "-l"), cwd=None, session=session,
                policy_sha256=policy, prev=sealed.hash, oldest_open=seq if first else None,
            )  # fmt: skip
            sealed = seal(line)
            file.write(sealed.line)
    path.chmod(0o600)


def full_jail(jail: Path, count: int) -> None:
    """Put `count` empty files into the jail."""
    for start in range(0, count, FOLDER_FILES):
        folder = jail / "many" / str(start)
        folder.mkdir(parents=True)
        for number in range(min(FOLDER_FILES, count - start)):
            (folder / str(number)).touch()


def places(plan: Plan) -> dict[str, Place]:
    """Return one small place, and one for each thing that may be large."""
    small = a_place(plan.folder / "small")
    policy = a_place(plan.folder / "policy", long_policy(plan.entries))
    trail = a_place(plan.folder / "trail")
    long_trail(trail.trail, plan.records)
    jail = a_place(plan.folder / "jail")
    full_jail(jail.jail, plan.files)
    return {
        SMALL: small,
        f"policy of {plan.entries:,} entries": policy,
        f"trail of {plan.records:,} records": trail,
        f"jail of {plan.files:,} files": jail,
    }


def scale(plan: Plan) -> list[Row]:
    """Starts and calls of all places, in turns."""
    prepared = places(plan)
    starts = in_turns({name: ready(server(place)) for name, place in prepared.items()}, plan.starts)
    with ExitStack() as stack:
        calls: dict[str, Way] = {
            name: stack.enter_context(Client(server(place))).call for name, place in prepared.items()
        }
        in_turns(calls, 3)
        called = in_turns(calls, plan.calls)
    return [*_rows("cold start", starts), *_rows("echo hi through MCP", called)]


def _rows(what: str, medians: dict[str, float]) -> list[Row]:
    small = medians.pop(SMALL) * 1e3
    return [
        Row(f"{what}, {name}", seconds * 1e3, "ms", SMALL, small, LIMIT, load())
        for name, seconds in medians.items()
    ]

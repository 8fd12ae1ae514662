"""Coverage-guided frames against the broker's decoding and its service. Not part of the suite.

usage: python tests/fuzz_frames.py [-runs=1000000] [-max_total_time=SECONDS] [-seed=N] [FOLDER OF FINDINGS]

Needs atheris (`pip install atheris`; the rest are libFuzzer's options). Each input is a whole conversation: its first byte
chooses whether it is taken as it is or as a recipe of messages, whether a handshake goes before it, and how it is cut. An
input that raises, hangs for ten seconds, makes the service hold more than its bound or breaks a rule of the protocol is
kept by libFuzzer as crash-* or timeout-*, and the program ends with its status. Every hundred thousand it prints how many
were tried, how they ended, and the largest resident set.
"""

import resource
import sys
from collections import Counter

import atheris
import msgspec

with atheris.instrument_imports(include=["protocol", "broker.connection", "broker.service"]):
    from broker import service
    from protocol import bare, client, framing, messages
    from protocol.messages import Refusal, Welcome
    from tests.faults.driven_service import DrivenService

service.warn = lambda line: None  # a million lines to the operator
HELLO = framing.encode(messages.HelloRequest(messages.PROTOCOL_VERSION, "fuzz"))
SEEDS = [
    framing.encode(message)
    for message in (
        messages.HelloRequest(messages.PROTOCOL_VERSION, "fuzz"),
        messages.RunRequest(1, "ls -l", "src", progress=True),
        messages.ExplainRequest(2, "rm x"),
        messages.MalformedRequest(3, messages.Tool.RUN, "{}", "no command"),
        messages.CancelRequest(1),
        messages.DescribeRequest(4),
    )
]
REPORT_EVERY = 100_000
ends: Counter[str] = Counter()


def one_conversation(data: bytes) -> None:
    """Try one input on every reader."""
    if not data:
        return
    options, stream = data[0], data[1:]
    if options & 4:
        stream = by_recipe(stream)
    if options & 2:
        stream = HELLO + stream
    size = max(1, len(stream) if options & 1 else (options >> 3) * 16)  # seldom byte by byte, which is slow
    served(stream, size)
    on_the_other_side(stream)
    if conversations() % REPORT_EVERY == 0:
        report()


def by_recipe(data: bytes) -> bytes:
    """Return a stream of mostly proper messages, whose kinds, texts and ids the input chooses."""
    source = atheris.FuzzedDataProvider(data)
    stream, last_id = b"", 0
    while source.remaining_bytes():
        last_id += source.PickValueInList([1, 1, 1, 1, 1, 1, 0, -1, 2**40])
        kind = source.ConsumeIntInRange(0, 7)
        if kind == 7:
            stream += source.ConsumeBytes(source.ConsumeIntInRange(0, 20))
            continue
        body = (
            source.ConsumeBytes(source.ConsumeIntInRange(0, 40))
            if kind == 6
            else message(source, kind, last_id)
        )
        stream += len(body).to_bytes(4, "big") + body
    return stream


def message(source: atheris.FuzzedDataProvider, kind: int, request_id: int) -> bytes:
    """Return one message's body, its fields not checked by anybody yet."""
    text = source.ConsumeUnicodeNoSurrogates(source.ConsumeIntInRange(0, 30))
    fields = (
        {"type": "run", "id": request_id, "command": text, "cwd": text if source.ConsumeBool() else None},
        {"type": "explain", "id": request_id, "command": text},
        {"type": "malformed", "id": request_id, "tool": "run_command", "arguments": text, "problem": text},
        {"type": "cancel", "id": abs(request_id)},
        {"type": "describe", "id": request_id},
        {"type": text, "id": request_id},
    )[kind]
    return msgspec.msgpack.encode(fields)


def served(stream: bytes, size: int) -> None:
    """The service: every request answered once and in order, or one refusal and then nothing."""
    driven = DrivenService()
    try:
        for start in range(0, len(stream), size):
            driven.feed(stream[start : start + size])
        refusals = [reply for reply in driven.replies if isinstance(reply, Refusal)]
        answered = [reply.id for reply in driven.replies if not isinstance(reply, Refusal | Welcome)]
        assert len(refusals) == len(driven.pipeline.violations) <= 1
        assert not refusals or driven.replies[-1] is refusals[0]
        assert answered == sorted(set(answered))
        ends[
            "refused" if refusals else "answered" if answered else "welcomed" if driven.replies else "silent"
        ] += 1
    finally:
        driven.close()


def on_the_other_side(stream: bytes) -> None:
    """The two readers of a frontend: they fail in their own way only."""
    connection = client.ClientConnection("fuzz")
    connection.hello()
    connection.run("ls")
    try:
        connection.feed(stream or b"\0")
    except client.BrokerGone:
        ends["client refused"] += 1
    try:
        bare.unpack(stream)
    except ValueError:
        ends["small reader refused"] += 1


def mutate(data: bytes, limit: int, seed: int) -> bytes:
    """libFuzzer's mutation, or a whole proper frame put in."""
    if seed % 4:
        return bytes(atheris.Mutate(data, limit))
    place = seed // 4 % (len(data) + 1)
    return (data[:place] + SEEDS[seed // 7 % len(SEEDS)] + data[place:])[:limit]


def conversations() -> int:
    """Return how many were tried."""
    return sum(ends[end] for end in ("refused", "answered", "welcomed", "silent"))


def report() -> None:
    """Print the figures."""
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{conversations()} conversations: {dict(ends)}; largest resident set {peak_mib:.0f} MiB", flush=True
    )


if __name__ == "__main__":
    atheris.Setup(
        ["fuzz_frames", "-timeout=10", "-max_len=512", *sys.argv[1:]],
        one_conversation,
        custom_mutator=mutate,
    )
    atheris.Fuzz()

"""Leaves processes behind in every way that is known: `daemon.py WAY MARKER`. Bounded: none lives longer than 60 s.

WAY: `leave` ends at once, `stay` waits with them, `hold` ends while a child keeps its output open.
"""

import os
import signal
import sys
import time

LIFE_S = 60
HOPS = 1500


def live():
    signal.alarm(LIFE_S)
    while True:
        signal.pause()


def in_child(action):
    if os.fork() == 0:
        signal.alarm(LIFE_S)
        action()
        os._exit(0)


def let_go():
    for descriptor in (0, 1, 2):
        os.close(descriptor)


def in_a_session_of_its_own():
    os.setsid()
    let_go()
    in_child(live)


def in_a_group_of_its_own():
    os.setpgid(0, 0)
    let_go()
    live()


def ignoring_signals():
    let_go()
    for number in set(range(1, 65)) - {9, 14, 19, 32, 33}:
        signal.signal(number, signal.SIG_IGN)
    live()


def hopping():
    """From process to process, so that whoever looks for it by number comes too late."""
    os.setsid()
    let_go()
    deadline = time.monotonic() + LIFE_S
    for _ in range(HOPS):
        time.sleep(0.002)
        if time.monotonic() > deadline or os.fork() > 0:
            os._exit(0)
        signal.alarm(LIFE_S)
    live()


ways = [in_a_session_of_its_own, in_a_group_of_its_own, ignoring_signals, hopping]
if sys.argv[1] == "hold":
    ways = [live]
for way in ways:
    in_child(way)
time.sleep(0.1)
print("left", flush=True)
if sys.argv[1] == "stay":
    live()

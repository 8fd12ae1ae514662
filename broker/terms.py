"""What one run gets of the warden, as the thread of its call says it before it starts the program."""

from collections.abc import Callable
from typing import NamedTuple

from broker.confinement import Layers
from broker.job import Recorded
from broker.limits import RLimits


class Terms(NamedTuple):
    """The terms of one run.

    `entry`: the name of its entry in the policy. `rlimits`, `tasks`: the limits of each process, and how many tasks there
    may be. `timeout_s`: how long its process may wait for its start. `cancelled`: whether it need not start any more.
    `layers`: which programs it may start. `jail`: its folder, a real path. `places`: where it may change metadata, real
    paths. `recorded`: what has to be on disk before it starts.
    """

    entry: str
    rlimits: RLimits
    tasks: int
    timeout_s: float
    cancelled: Callable[[], bool]
    layers: Layers
    jail: str
    places: tuple[str, ...]
    recorded: Recorded

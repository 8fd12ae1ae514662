"""A descriptor that lives as long as somebody holds it.

Always true: it is closed once, when the last holder lets go.
"""

import os
from collections.abc import Callable


class OwnedFd:
    """`fd` is closed when nobody holds this any more."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)

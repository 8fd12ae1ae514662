"""What a program of a Python virtual environment has to read: the environment, and the installation behind it (PEP 405).

Always true: only a program that was found along the policy's own path is looked at, so its folder is one that nobody
else may write; nothing is granted but reading.
"""

import os
from functools import cache


@cache
def places_of(found: str) -> tuple[str, ...]:
    """Return the folders that the program at `found` reads; none where it is in no virtual environment."""
    environment = os.path.dirname(os.path.dirname(found))
    try:
        with open(os.path.join(environment, "pyvenv.cfg"), encoding="utf-8") as file:
            settings = dict(line.split("=", 1) for line in file if "=" in line)
    except (OSError, UnicodeDecodeError):
        return ()
    home = next((value.strip() for key, value in settings.items() if key.strip() == "home"), "")
    return (environment, os.path.dirname(home)) if os.path.isabs(home) else (environment,)

"""The two console commands."""


def hardened_terminal_mcp() -> None:
    """Run `hardened-terminal-mcp`."""


def hardened_terminal_broker() -> None:
    """Run `hardened-terminal-broker`."""

"""Tests of hardened-terminal-mcp; `support` holds what several folders need."""

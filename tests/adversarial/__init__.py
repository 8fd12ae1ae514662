"""Hostile inputs through the real broker, with the kernel watching: a case is contained when no canary shows anything."""

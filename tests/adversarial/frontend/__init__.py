"""Attacks by code that runs inside a confined frontend."""

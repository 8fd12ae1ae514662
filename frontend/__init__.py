"""Frontends: what talks to a person or an AI client. They hold no right of their own and never import the broker."""

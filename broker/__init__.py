"""The broker: it alone holds policy, jail, audit trail and spawning. It imports the standard library, msgspec and re2."""

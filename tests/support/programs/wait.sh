# Waits for as long as it is told, in one process.
exec sleep "$1"

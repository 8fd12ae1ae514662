# Prints without end on standard error.
exec yes "$1" >&2

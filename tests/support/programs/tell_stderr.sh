# Prints a file on standard error.
cat "$1" >&2

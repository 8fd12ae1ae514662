# Ends with the status that it is told.
exit "$1"

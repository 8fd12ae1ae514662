# Ignores every signal that can be ignored, and goes on.
trap '' TERM INT HUP QUIT
while :; do sleep "$1"; done

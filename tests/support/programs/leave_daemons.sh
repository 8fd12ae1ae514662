# Leaves processes behind that hold its output open: one in a session of its own, one without a parent.
setsid sleep "$1" &
(setsid sleep "$1" &)
(trap '' TERM HUP; sleep "$1" &)
echo left

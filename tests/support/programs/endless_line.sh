# Prints one line that never ends.
while :; do printf %01000d 0; done

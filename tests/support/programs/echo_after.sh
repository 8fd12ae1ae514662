# Waits, then prints a word.
sleep "$1"
echo "$2"

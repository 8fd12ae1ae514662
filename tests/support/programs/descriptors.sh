# Names every descriptor above two that is open, and says whether its input is a terminal.
for number in 3 4 5 6 7 8 9; do
    (: <&$number) 2>&- && echo "descriptor $number"
done
test -t 0 || echo no terminal

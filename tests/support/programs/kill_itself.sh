# Ends by a signal.
kill -9 $$

"""What a test of the whole command needs: a place with a jail, clients, and a look at processes and the trail.

Always true: every wait has a bound, nothing here starts a server without a way to end it, and no module knows more of
the product than its documentation says.
"""

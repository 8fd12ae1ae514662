"""The contract: what the installed command promises to its clients and its operator."""

"""A frontend that is not Python."""

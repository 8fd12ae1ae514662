"""What a frontend and the broker say to each other: messages, framing, and the client side of a connection."""

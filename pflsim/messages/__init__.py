"""Messages: what travels between actors, and the port through which an actor sees the world."""

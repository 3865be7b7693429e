"""How versions get from a publisher to its readers: the chain of messages, and the way they go."""

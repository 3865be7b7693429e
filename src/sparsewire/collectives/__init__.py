"""Collectives on arrays and sparse vectors: the communicator, and what its calls become."""

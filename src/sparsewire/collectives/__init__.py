"""Collectives on arrays and sparse vectors: the communicator, and how it carries out calls."""

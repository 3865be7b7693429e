"""Distributed optimisation methods that send compressed messages, one per file."""

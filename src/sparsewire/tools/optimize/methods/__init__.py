"""Distributed optimisation methods that send compressed messages; those alike are in one file."""

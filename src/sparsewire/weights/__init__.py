"""Weights: a new version of a model for its readers, in the bytes of what changed."""

"""Minimises functions over several workers: problems, methods, their comparison, training."""

"""Taps, which see gradients, tables and optimizers of a training."""

"""Predicts a step over another network or by another method."""

"""Collectives of a process group on tensors of devices."""

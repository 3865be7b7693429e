"""A process group's tensors on devices."""

"""Tensors on accelerators, for an engine that reads host memory: marked and packed where they are.

It stands below the communicator, and is imported with the first tensor that is on a device.
"""

"""Tensors on accelerators, for an engine that reads host memory: packed on their device, and moved.

The package is a layer below the communicator. The first tensor on a device imports it.
"""

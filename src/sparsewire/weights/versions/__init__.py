"""Versions of weights as bytes: tensors, files of safetensors, codes and messages."""

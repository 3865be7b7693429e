"""Compares methods that send compressed messages, and chooses one: for `sparsewire optimize`."""

"""`sparsewire doctor`: each rank's machine, the link, the faults, and their remedies."""

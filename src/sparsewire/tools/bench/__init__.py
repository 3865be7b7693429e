"""The benchmark behind `sparsewire bench`: real processes, checked results, compared with gloo."""

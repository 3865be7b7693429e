"""What `sparsewire optimize` runs: linear models, trained over the sparse collectives."""

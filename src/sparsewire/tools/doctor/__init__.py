"""What `sparsewire doctor` finds out: each rank's machine, the link, what is wrong, what to do."""

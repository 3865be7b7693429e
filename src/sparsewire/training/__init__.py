"""What `sparsewire bench training` runs: networks trained with compressed and dense gradients."""

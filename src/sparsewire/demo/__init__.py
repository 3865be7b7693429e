"""What `sparsewire demo` runs: a language model, trained over gloo and then over sparsewire."""

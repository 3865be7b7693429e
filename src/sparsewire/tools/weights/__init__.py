"""What the commands of `sparsewire weights` do on networks: serve directories, and follow them."""

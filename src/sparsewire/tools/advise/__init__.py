"""Whether sparsewire pays for a training, from its recorded profile: predictions and advice."""

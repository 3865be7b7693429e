"""A small language model trained by reinforcement: two ranks train it, two readers sample."""

"""What sees gradients, tables and optimizers of a training."""

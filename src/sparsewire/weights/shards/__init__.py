"""Parts of tensors: who holds which, and how a reader's tensors are made of them."""

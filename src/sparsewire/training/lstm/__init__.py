"""An LSTM language model with a sampled softmax, and the text that it learns."""

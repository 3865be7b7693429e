"""What trainings are like on the wire: recorded step by step, and read back."""

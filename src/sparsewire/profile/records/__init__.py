"""What a profile writes down and reads back."""

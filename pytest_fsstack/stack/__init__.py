"""What a stack is: its text, its layers, how one is built."""

"""Records of a session, and the format of their file. They hold data: nothing is judged or described here."""

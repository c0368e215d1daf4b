"""Network filesystems. Server and client are both on this machine, in a network namespace of their own."""

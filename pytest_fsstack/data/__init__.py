"""What workloads read: corpora, archives, noise, and how big."""

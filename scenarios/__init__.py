"""Ready-made scenarios. Each file answers one question about storage, on the device that you name."""

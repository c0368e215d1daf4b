"""What the plugin costs, against a reference that is measured in the same run."""

"""What the control plane does by itself."""

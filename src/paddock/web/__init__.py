"""The dashboard: pages rendered here, nothing loaded from elsewhere."""

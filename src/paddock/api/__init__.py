"""The HTTP edge: who asks, whether they may, and the translation between JSON and the core. No rule lives here."""

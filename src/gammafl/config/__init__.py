"""A run's configuration: its settings (schema), the layers that they come from, and error messages about them."""

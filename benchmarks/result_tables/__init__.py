"""What the tables of the result pages are made of: one module per subject."""

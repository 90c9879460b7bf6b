"""`erm`, empirical risk minimisation: cross entropy with equal weight for every image (paper, Sec.
A.2)."""

from diagvib.methods.method import Method


class Erm(Method):
    """The interface without changes; no supervision, no options."""

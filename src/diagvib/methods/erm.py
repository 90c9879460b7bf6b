"""`erm`, empirical risk minimisation: cross entropy on every image alike (paper, Sec. A.2)."""

from diagvib.methods.method import Method


class Erm(Method):
    """The interface as it stands; told nothing, no options."""

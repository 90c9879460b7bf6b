"""The papers: their numbers, and how ours compare with them. No other room knows a paper."""

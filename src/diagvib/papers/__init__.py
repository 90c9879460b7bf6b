"""The papers, a folder for each: its numbers, and how ours compare with them. No other room knows a paper."""

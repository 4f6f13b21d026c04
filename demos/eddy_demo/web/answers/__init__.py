"""Answers to questions, and explanations of them."""

"""The rules of the guideline as code."""

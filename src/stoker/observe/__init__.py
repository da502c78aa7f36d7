"""Measurements as data, and the texts made of them: statistics, the verdict, traces, pages."""
